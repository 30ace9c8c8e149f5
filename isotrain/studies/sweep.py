"""A sweep of `isotrain train -m`: the product of the values on a command line."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isotrain.config.command import check_jobs
from isotrain.config.compose import key_of
from isotrain.config.sweep import swept_keys
from isotrain.jobs.archive import Job, job_of
from isotrain.jobs.pool import Pool
from isotrain.jobs.process import Backend, local, warm_up
from isotrain.jobs.stored import SWEEP, PlanError
from isotrain.runs.files import write_json
from isotrain.runs.secrets import redacted
from isotrain.studies.plan import SHARED, judge_parts

MOST = 80  # letters of a name


def plan_sweep(overrides: Sequence[str], config_dir: str | None = None) -> list[Job]:
    """The runs of a valid command line; `threads=1` unless overridden.

    >>> [job.name for job in plan_sweep(["seed=0,1", "task=rte", "site=[tokens],[pooled]"])][:2]
    ['0-seed_0-site_tokens', '1-seed_0-site_pooled']
    """
    swept = swept_keys(overrides)
    jobs = []
    runs, _ = check_jobs([*SHARED, *overrides], config_dir, multirun=True)
    for number, (cfg, method, own, *_) in enumerate(runs):
        if cfg.threads is None:
            cfg.threads = 1
        values = [text for text in own if key_of(text) in swept]
        name = "-".join([str(number), *(re.sub(r"\W+", "_", v).strip("_") for v in values)])[:MOST]
        jobs.append(job_of(cfg, method, own, label=name, rerun=cfg.rerun))
    return jobs


def sweep_folder(
    jobs: Sequence[Job], overrides: Sequence[str], config_dir: str | None = None
) -> Path:
    """`<output_dir>/sweeps/<keys>-<hash>`: the same for the same command."""
    keys = "-".join(key.rpartition(".")[2] for key in swept_keys(overrides)) or "one"
    digits = hashlib.sha256(json.dumps([config_dir, *overrides]).encode()).hexdigest()[:8]
    keys = re.sub(r"\W+", "_", keys)[:MOST]
    return Path(str(jobs[0].of_pair.output_dir)) / "sweeps" / f"{keys}-{digits}"


def run_sweep(
    overrides: Sequence[str],
    n_jobs: int = 1,
    config_dir: str | None = None,
    backend: Backend = local,
    folder: Path | None = None,
) -> int:
    """Exit code: 0 if every run of a sweep is finished, 1 if one failed, 128 + signal if stopped.

    `folder` is its own where it was moved; None = `sweep_folder`.

    Raises:
        PlanError: parts that do not fit, or nothing can be written to its folder.
    """
    if backend is local:
        warm_up()  # while this process plans
    jobs = plan_sweep(overrides, config_dir)
    folder = folder or sweep_folder(jobs, overrides, config_dir)
    with Pool(folder, n_jobs, f"sweep {folder.name}", backend) as pool:

        def check() -> list[Job]:
            found, named = judge_parts(jobs, lambda job: job.name)
            if found:
                raise PlanError("\n".join(found))
            return named

        if (planned := pool.check_parts(check)) is None:
            return pool.code(0)
        given: dict[str, Any] = {"overrides": redacted([*overrides]), "config_dir": config_dir}
        write_json(folder / SWEEP, given)
        return pool.code(pool.run(planned))
