"""One run from start to end: seed, build, evaluate, fit, test, record."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import time
import warnings
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf

from isotrain.build import Experiment, build
from isotrain.config import check, content_hash, plain
from isotrain.pages.curves import draw_curves
from isotrain.pages.summary import print_start, print_summary
from isotrain.training.jsonl_logger import JsonlLogger, read_rows

CODE = ("isotrain", "git")  # of the environment: what may change the numbers of a run
PACKAGES = ("torch", "pytorch-lightning", "transformers", "datasets", "torchmetrics", "numpy")


def run(cfg: DictConfig, arm: str) -> dict[str, float]:
    """The final scores of a run, such as `val/accuracy`; trained now, or read where finished.

    The run folder is `<output_dir>/<task>/<arm>-<content hash>`. It receives `config.yaml`,
    `metrics.jsonl`, `curves.png`, `last.ckpt` and, when the run has ended, `result.json`.

    Raises:
        ValueError: a configuration that cannot run; nothing is written then.
    """
    check(cfg)
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    cfg = _with_threads(cfg)
    folder = run_folder(cfg, arm)
    stored, environment = folder / "result.json", _environment()
    if stored.is_file() and not cfg.rerun:
        result: dict[str, Any] = json.loads(stored.read_text(encoding="utf-8"))
        if result["status"] == "finished":
            note = "finished before; rerun=true trains again"
            if changed := [k for k in CODE if result["environment"][k] != environment[k]]:
                note += f"; the code has changed since ({', '.join(changed)})"
            print_summary(result, read_rows(folder / "metrics.jsonl"), folder, note)
            return dict(result["scores"])

    quiet()
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    started = time.perf_counter()
    experiment = build(cfg, folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("result.json", "metrics.jsonl", "curves.png", "last.ckpt"):
        (folder / name).unlink(missing_ok=True)  # of an earlier try
    OmegaConf.save(OmegaConf.create(plain(cfg)), folder / "config.yaml")
    print_start(folder, experiment.n_parameters, experiment.data.n_rows)
    result = {
        "status": "failed",
        "arm": arm,
        "seed": cfg.seed,
        "config": plain(cfg),
        "n_parameters": experiment.n_parameters,
        "n_rows": experiment.data.n_rows,
        "encoder": experiment.source_id,
        "data": experiment.data_revision,
        "device": str(experiment.trainer.strategy.root_device),
        "monitor": f"val/{experiment.module.task.monitor}",
        "environment": environment,
    }
    rows: list[dict[str, float]] = []
    try:
        _open_loggers(experiment, folder, {**plain(cfg), **experiment.n_parameters})
        timings = _train(experiment)
        if cfg.checkpoint:
            experiment.trainer.save_checkpoint(folder / "last.ckpt", weights_only=True)
        rows = read_rows(folder / "metrics.jsonl")
        result |= {
            "status": "finished",
            "steps": experiment.trainer.global_step,
            "scores": _last_values(rows),
            "timings_s": timings | {"total": round(time.perf_counter() - started, 2)},
        }
    except BaseException as error:
        result["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        _write(stored, result)  # first: a logger that fails to close must not cost a run
        status = "success" if result["status"] == "finished" else "failed"
        for logger in experiment.trainer.loggers:
            logger.finalize(status)
        _close_wandb(status)
    title = f"{experiment.module.task.name} · {folder.name} · seed {cfg.seed}"
    draw_curves(rows, folder / "curves.png", title, result["monitor"])
    print_summary(result, rows, folder)
    return dict(result["scores"])


def run_folder(cfg: DictConfig, arm: str) -> Path:
    """`<output_dir>/<task>/<arm>-<content hash>`, whether it exists or not."""
    task_name = str(cfg.task["_target_"]).rpartition(".")[2].lower()
    return Path(str(cfg.output_dir)) / task_name / f"{arm}-{content_hash(_with_threads(cfg))}"


def _with_threads(cfg: DictConfig) -> DictConfig:
    """`cfg` with the number of threads spelled out: results depend on it."""
    merged = OmegaConf.merge(cfg, {"threads": cfg.threads or torch.get_num_threads()})
    assert isinstance(merged, DictConfig)
    return merged


def _open_loggers(experiment: Experiment, folder: Path, params: dict[str, Any]) -> None:
    """Attach the loggers; the file of rows last: what it has, every other logger has too."""
    name = f"{folder.parent.name}-{folder.name}-seed{params['seed']}"
    experiment.trainer.loggers = [
        *(build_logger(save_dir=str(folder), name=name) for build_logger in experiment.loggers),
        JsonlLogger(folder / "metrics.jsonl"),
    ]
    for logger in experiment.trainer.loggers:
        logger.log_hyperparams(params)


def _train(experiment: Experiment) -> dict[str, float]:
    """Evaluate at step 0, fit, evaluate at the end of fit, test; seconds of each."""
    module, data, trainer = experiment.module, experiment.data, experiment.trainer
    times = [time.perf_counter()]
    trainer.validate(module, datamodule=data, verbose=False)
    times.append(time.perf_counter())
    trainer.fit(module, datamodule=data)
    if module.evaluated_step != trainer.global_step:
        trainer.validate(module, datamodule=data, verbose=False)
    times.append(time.perf_counter())
    if data.n_rows["test"]:
        trainer.test(module, datamodule=data, verbose=False)
    times.append(time.perf_counter())
    seconds = [round(b - a, 2) for a, b in pairwise(times)]
    return dict(zip(("first_evaluation", "fit", "test"), seconds, strict=True))


def _last_values(rows: list[dict[str, float]]) -> dict[str, float]:
    """The last logged value of every evaluation key."""
    values: dict[str, float] = {}
    for row in rows:
        values |= {k: v for k, v in row.items() if k.startswith(("val/", "test/", "isotropy/"))}
    return values


def _environment() -> dict[str, Any]:
    """Versions, machine and code state, for the record."""
    return {
        "python": platform.python_version(),
        "isotrain": version("isotrain"),
        **{name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "git": _git_state(),
    }


def _git_state() -> str | None:
    """Commit of the checkout the package runs from, with `-dirty` for changes; else None."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _close_wandb(exit_status: str) -> None:
    """End the W&B run, or the next run of this process would continue it."""
    import sys

    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish(exit_code=0 if exit_status == "success" else 1)


def _write(path: Path, result: dict[str, Any]) -> None:
    """Replace a JSON file in one step, so that no half of it can be read."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)


def quiet() -> None:
    """Silence notices that say nothing about the run."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (".*does not have many workers.*", ".*isinstance.treespec, LeafSpec.*"):
        warnings.filterwarnings("ignore", message=message)
