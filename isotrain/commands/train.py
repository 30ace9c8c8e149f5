"""`isotrain train` and `isotrain demo`: validate a command line, then run it."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from omegaconf import OmegaConf

from isotrain.commands.worker import errors_printed, run_job
from isotrain.config.command import TRAINING
from isotrain.config.compose import RunJob, job_text
from isotrain.config.schema import n_processes
from isotrain.config.sweep import check_sweep, names
from isotrain.console import launched, reject
from isotrain.jobs.process import COMMAND, JOB, own_environment

GROUPS = (*TRAINING, "encoder", "source")  # of a run, as --keys lists them


def train(
    overrides: Sequence[str],
    config_dir: str | None = None,
    multirun: bool = False,
    jobs: int | None = None,
    keys: bool = False,
) -> int:
    """The exit code of `isotrain train`.

    An invalid command line is rejected before anything starts, with all errors in its keys at once.
    Missing files and errors of imported parts are reported by the run, or for a sweep before any
    job.
    """
    runs, overrides, mistakes = check_sweep(overrides, config_dir, multirun)
    if keys and not mistakes:
        print(*(f"{group}: {', '.join(names(group))}" for group in sorted(GROUPS)), sep="\n")
        print("", OmegaConf.to_yaml(runs[0].cfg), sep="\n", end="")
        return 0
    if jobs is not None and not multirun:
        mistakes.append(f"--jobs {jobs} is the number of runs at a time of -m")
    if multirun and launched():
        mistakes.append(
            "-m starts a process for each run, and this is one of torchrun or srun; start it once, "
            "and give each run its processes by trainer.devices=..."
        )
    if mistakes:
        return reject(mistakes)
    if multirun:
        from isotrain.studies.sweep import run_sweep

        return run_sweep(overrides, jobs or 1, config_dir)
    return run_here(runs[0])


def run_here(job: RunJob) -> int:
    """The exit code of one run, in this process or as the ranks of another."""
    if not launched() and (n := n_processes(job.cfg.trainer)) > 1:
        if job.cfg.threads is None:
            job.cfg.threads = max(1, n_cores() // n)
        _become(job)
    return run_job(job)


def demo(overrides: Sequence[str]) -> int:
    """Run both runs of the demo, with the checks and messages of `train`; the exit code."""
    from isotrain.demo import demo, demo_mistakes

    if mistakes := demo_mistakes(overrides):
        return reject(mistakes)
    codes: list[int] = []
    with errors_printed(codes):
        demo(overrides)
    return max(codes, default=0)


def _become(job: RunJob) -> NoReturn:
    """Replace this process by that of a run of several processes: ranks repeat its command."""
    sys.stdout.flush()
    os.execve(sys.executable, [*COMMAND, "-"], own_environment() | {JOB: job_text(job)})


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
