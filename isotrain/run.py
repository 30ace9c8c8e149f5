"""One run from start to end: seed, build, evaluate, fit, test, record; or on from a checkpoint."""

from __future__ import annotations

import errno
import logging
import sys
import time
import warnings
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.exceptions import SIGTERMException

from isotrain.build import Experiment, build
from isotrain.config.compose import plain, run_folder
from isotrain.config.redaction import redacted
from isotrain.config.rules import check
from isotrain.pages.curves import draw_curves
from isotrain.pages.summary import print_start, print_summary, say
from isotrain.record import (
    check_writable,
    code_changes,
    environment,
    owned,
    read_result,
    write_json,
)
from isotrain.training.checkpoints import load_resume_point
from isotrain.training.faults import NonFiniteError
from isotrain.training.jsonl_logger import JsonlLogger, read_rows
from isotrain.training.same_config import process_rank

OF_A_TRY = (
    *("result.json", "metrics.jsonl", "curves.png", "last.ckpt", "resume.ckpt"),
    *("fault.json", "wandb_id"),
)
STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)


class CannotRunError(ValueError):
    """Parts that do not fit together, or data or weights that are not there; nothing was run."""


class StorageError(OSError):
    """The run folder can no longer be written to."""


def run(cfg: DictConfig, arm: str) -> dict[str, float]:
    """The final scores of a run, such as `val/accuracy`; trained now, or read where finished.

    The run folder is `<output_dir>/<task>/<arm>-<content hash>`. It receives `config.yaml`,
    `metrics.jsonl`, `curves.png`, `last.ckpt` and, when the run has ended, `result.json`. A run
    that was stopped goes on from `resume.ckpt`. Processes other than the first of a distributed
    run write nothing and return nothing.

    Raises:
        ValueError: a configuration that cannot run, or (`CannotRunError`) parts that do not fit
            or are not there; nothing is written then.
        NonFiniteError: training left the numbers; `fault.json` tells where.
        StorageError: the folder is full or read-only; the last checkpoint is intact.
    """
    check(cfg)
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    cfg = with_threads(cfg)
    folder = run_folder(cfg, arm)
    now = environment()
    if stored := _stored(cfg, folder, now):
        return stored
    quiet()
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    started = time.perf_counter()
    try:
        check_writable(folder)
        experiment = build(cfg, folder)
    except (ValueError, OSError) as error:
        raise CannotRunError(str(error)) from error
    is_first = process_rank() == 0
    with owned(folder, by_this_process=is_first):
        if is_first and (stored := _stored(cfg, folder, now)):  # by another process meanwhile
            return stored
        return _run(cfg, arm, folder, experiment, now, started)


def with_threads(cfg: DictConfig) -> DictConfig:
    """`cfg` with the number of threads spelled out: results depend on it."""
    merged = OmegaConf.merge(cfg, {"threads": cfg.threads or torch.get_num_threads()})
    assert isinstance(merged, DictConfig)
    return merged


def _stored(cfg: DictConfig, folder: Path, now: dict[str, Any]) -> dict[str, float]:
    """The scores of a finished run, printed; empty if there is none or it shall run again."""
    result = read_result(folder)
    if result.get("status") != "finished" or cfg.rerun:
        return {}
    note = "finished before; rerun=true trains again" + code_changes(result, now)
    if cfg.logger:
        note += f"; nothing was sent to {', '.join(cfg.logger)}"
    print_summary(result, read_rows(folder / "metrics.jsonl"), folder, note)
    return dict(result["scores"])


def _run(
    cfg: DictConfig,
    arm: str,
    folder: Path,
    experiment: Experiment,
    now: dict[str, Any],
    started: float,
) -> dict[str, float]:
    is_first = process_rank() == 0
    earlier = read_result(folder)
    point = None if earlier.get("status") == "finished" else _resume_point(folder)
    content = redacted(plain(cfg))
    result = {
        "status": "running",
        "arm": arm,
        "seed": cfg.seed,
        "config": content,
        "n_parameters": experiment.n_parameters,
        "n_rows": experiment.data.n_rows,
        "encoder": experiment.source_id,
        "data": experiment.data_revision,
        "device": str(experiment.trainer.strategy.root_device),
        "n_processes": experiment.trainer.world_size,
        "monitor": f"val/{experiment.module.task.monitor}",
        "environment": now,
    }
    if is_first:
        if point is None:
            for name in OF_A_TRY:
                (folder / name).unlink(missing_ok=True)
        OmegaConf.save(OmegaConf.create(content), folder / "config.yaml")
        write_json(folder / "result.json", result)
        print_start(folder, experiment.n_parameters, experiment.data.n_rows)
        if point is not None:
            say(f"going on after step {point['step']}{code_changes(earlier, now)}")
    rows: list[dict[str, float]] = []
    try:
        log = _open_loggers(experiment, folder, {**content, **experiment.n_parameters})
        log.resume(point["n_bytes"] if point else 0)
        timings = _train(experiment, folder / "resume.ckpt" if point else None, point)
        if cfg.checkpoint.final:
            experiment.trainer.save_checkpoint(folder / "last.ckpt", weights_only=True)
        rows = read_rows(folder / "metrics.jsonl")
        result |= {
            "status": "finished",
            "steps": experiment.trainer.global_step,
            "scores": _last_values(rows),
            "timings_s": timings | {"total": round(time.perf_counter() - started, 2)},
        }
    except BaseException as error:
        stopped = isinstance(error, SIGTERMException | KeyboardInterrupt)
        result |= {
            "status": "interrupted" if stopped else "failed",
            "error": redacted(f"{type(error).__name__}: {error}"),
        }
        if isinstance(error, NonFiniteError):  # each process knows the rows of its own
            rank = "" if is_first else f"_rank{process_rank()}"
            write_json(folder / f"fault{rank}.json", error.report)
        if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
            raise StorageError(
                f"{folder}: {error.strerror}. "
                + ("The last checkpoint is intact; " if (folder / "resume.ckpt").is_file() else "")
                + "make room, or make the folder writable, and give the same command again"
            ) from error
        raise
    finally:
        failed = result["status"] != "finished"
        if is_first:
            # First: a logger that fails to close must not cost a run.
            with suppress(OSError) if failed else nullcontext():
                write_json(folder / "result.json", result)
        for logger in experiment.trainer.loggers:
            logger.finalize("failed" if failed else "success")
        _close_wandb(failed)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if not is_first:
        return {}
    (folder / "resume.ckpt").unlink(missing_ok=True)
    title = f"{experiment.module.task.name} · {folder.name} · seed {cfg.seed}"
    draw_curves(rows, folder / "curves.png", title, result["monitor"])
    print_summary(result, rows, folder)
    return dict(result["scores"])


def _resume_point(folder: Path) -> dict[str, Any] | None:
    """Where an unfinished run stopped; None starts it anew."""
    try:
        return load_resume_point(folder / "resume.ckpt")
    except Exception as error:  # whatever a damaged file makes torch raise
        say(f"{folder / 'resume.ckpt'} cannot be read ({error}); starting anew")
        return None


def _open_loggers(experiment: Experiment, folder: Path, params: dict[str, Any]) -> JsonlLogger:
    """The file of rows, with the other loggers behind it, attached to the trainer."""
    others = []
    if process_rank() == 0:
        name = f"{folder.parent.name}-{folder.name}-seed{params['seed']}"
        others = [
            build_logger(save_dir=str(folder), name=name) for build_logger in experiment.loggers
        ]
    log = JsonlLogger(folder / "metrics.jsonl", others)
    experiment.trainer.loggers = [log]
    log.log_hyperparams(params)
    return log


def _train(
    experiment: Experiment, checkpoint: Path | None, point: dict[str, Any] | None
) -> dict[str, float]:
    """Evaluate at step 0, fit, evaluate at the end of fit, test; seconds of each."""
    module, data, trainer = experiment.module, experiment.data, experiment.trainer
    if trainer.global_rank > 0:  # the weights are built: now dropout may differ
        pl.seed_everything(data.seed + trainer.global_rank, workers=True, verbose=False)
    times = [time.perf_counter()]
    if point is None:
        trainer.validate(module, datamodule=data, verbose=False)
    else:
        data.start = (point["epoch"], point["batches"])
    times.append(time.perf_counter())
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
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


def _close_wandb(failed: bool) -> None:
    """End the W&B run, or the next run of this process would continue it."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish(exit_code=int(failed))


def quiet() -> None:
    """Silence notices that say nothing about the run."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*`broadcast_buffers` is deprecated.*",  # its successor is not in all torch versions
        ".*resuming from a checkpoint that ended before the epoch ended.*",  # ours goes on exactly
    ):
        warnings.filterwarnings("ignore", message=message)
