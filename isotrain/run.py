"""One run from start to end: seed, build, evaluate, fit, test, record; or on from a checkpoint."""

from __future__ import annotations

import logging
import os
import time
import warnings
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf

from isotrain.build import Experiment, build, data_revision
from isotrain.config.compose import plain, run_folder
from isotrain.config.redaction import redacted
from isotrain.config.rules import check
from isotrain.pages.curves import draw_curves
from isotrain.pages.summary import print_start, print_summary, say
from isotrain.record import (
    CannotRunError,
    StorageError,
    check_writable,
    code_changes,
    environment,
    owned,
    storage_failure,
)
from isotrain.results import read_result, write_json
from isotrain.training.checkpoints import load_resume_point
from isotrain.training.faults import NonFiniteError
from isotrain.training.jsonl_logger import read_rows
from isotrain.training.loggers import close_loggers, open_loggers
from isotrain.training.same_config import process_rank

OF_A_TRY = (
    *("result.json", "metrics.jsonl", "curves.png", "last.ckpt", "resume.ckpt"),
    *("fault.json", "wandb_id"),
)


def run(cfg: DictConfig, arm: str) -> dict[str, float]:
    """The final scores of a run, such as `val/accuracy`; trained now, or read where finished.

    The run folder is `<output_dir>/<task>/<arm>-<content hash>`. It receives `config.yaml`,
    `metrics.jsonl`, `curves.png`, `last.ckpt` and `result.json`. A run that was stopped goes on
    from `resume.ckpt`. Processes other than the first of a distributed run write nothing and
    return nothing.

    Raises:
        CannotRunError: a ValueError: a configuration that cannot run, parts that do not fit, data
            or weights that are not there; nothing is written then.
        NonFiniteError: training left the numbers; `fault.json` tells where.
        StorageError: the folder is full or read-only; the last checkpoint is intact.
    """
    started, is_first = time.perf_counter(), process_rank() == 0
    try:
        check(cfg)
        cfg = with_threads(cfg)
        torch.set_num_threads(cfg.threads)
        os.environ["OMP_NUM_THREADS"] = str(cfg.threads)  # else ranks would be given another
        folder, now = run_folder(cfg, arm), environment()
        revision = data_revision(cfg)
        if stored := _stored(cfg, folder, now, revision):
            return stored
        quiet()
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        check_writable(folder)
        experiment = build(cfg, folder)
    except (ValueError, OSError, MisconfigurationException) as error:
        raise CannotRunError(redacted(str(error))) from error
    with owned(folder, by_this_process=is_first):
        if is_first and (stored := _stored(cfg, folder, now, revision)):  # by another meanwhile
            return stored
        point = _resume_point(cfg, folder, revision)
        record = _begin(cfg, arm, folder, experiment, now, revision, point)
        try:
            rows = _work(cfg, folder, experiment, record, point)
            record |= {
                "status": "finished",
                "steps": experiment.trainer.global_step,
                "scores": _last_values(rows),
            }
            record["timings_s"]["total"] = round(time.perf_counter() - started, 2)
            if is_first:
                write_json(folder / "result.json", record)
                (folder / "resume.ckpt").unlink(missing_ok=True)
        except BaseException as error:
            _record_failure(error, folder, record)
            if isinstance(error, OSError) and (sentence := storage_failure(error, folder)):
                raise StorageError(sentence) from error
            raise
        finally:
            experiment.checkpoints.listen(False)
            close_loggers(experiment.trainer, failed=record["status"] != "finished")
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        if not is_first:
            return {}
        title = f"{experiment.module.task.name} · {folder.name} · seed {cfg.seed}"
        _draw(rows, folder / "curves.png", title, record["monitor"])
    print_summary(record, rows, folder)
    return dict(record["scores"])


def with_threads(cfg: DictConfig) -> DictConfig:
    """`cfg` with the number of threads spelled out: results depend on it."""
    merged = OmegaConf.merge(cfg, {"threads": cfg.threads or torch.get_num_threads()})
    assert isinstance(merged, DictConfig)
    return merged


def _stored(cfg: DictConfig, folder: Path, now: dict[str, Any], revision: str) -> dict[str, float]:
    """The scores of a finished run, printed; empty if there is none or it shall run again.

    Raises:
        CannotRunError: the data have changed since.
    """
    result = read_result(folder)
    if result.get("status") != "finished" or cfg.rerun:
        return {}
    if result["data"] != revision:
        raise CannotRunError(
            f"{folder} was finished on {result['data']}, which is {revision} now; rerun=true "
            "trains on that and replaces the result"
        )
    note = "finished before; rerun=true trains again" + code_changes(result, now)
    if cfg.checkpoint.final and not result["config"]["checkpoint"]["final"]:
        note += "; it kept no last.ckpt (checkpoint.final=false), and rerun=true will"
    if cfg.logger:
        note += f"; nothing was sent to {', '.join(cfg.logger)}"
    print_summary(result, read_rows(folder / "metrics.jsonl"), folder, note)
    return dict(result["scores"])


def _resume_point(cfg: DictConfig, folder: Path, revision: str) -> dict[str, Any] | None:
    """Where an unfinished run stopped; None starts it anew.

    Raises:
        CannotRunError: the checkpoint cannot be opened, rows it knows of are gone, or the data
            have changed since.
    """
    earlier = read_result(folder)
    if earlier.get("status") == "finished":
        return None
    if (folder / "resume.ckpt").is_file() and earlier.get("data") != revision:
        if cfg.rerun:
            return None
        raise CannotRunError(
            f"{folder} was begun on {earlier.get('data')}, which is {revision} now; put the data "
            "back, or start anew with rerun=true"
        )
    path, rows = folder / "resume.ckpt", folder / "metrics.jsonl"
    try:
        point = load_resume_point(path)
    except OSError as error:
        raise CannotRunError(f"{path} cannot be opened: {error.strerror}; try again") from error
    except Exception as error:  # whatever a damaged file makes torch raise
        damaged = path.replace(path.with_suffix(".damaged"))
        say(f"{path} cannot be read and is kept as {damaged.name} ({error}); starting anew")
        return None
    n_bytes = rows.stat().st_size if rows.is_file() else 0
    if point is not None and n_bytes < point["n_bytes"]:
        raise CannotRunError(
            f"{rows} has {n_bytes} bytes and the checkpoint beside it knows of {point['n_bytes']}: "
            f"rows were deleted; put them back, or delete {path} to start anew"
        )
    return point


def _begin(
    cfg: DictConfig,
    arm: str,
    folder: Path,
    experiment: Experiment,
    now: dict[str, Any],
    revision: str,
    point: dict[str, Any] | None,
) -> dict[str, Any]:
    """The record of the run, written as `running` into a folder cleared of an earlier try."""
    content, earlier = redacted(plain(cfg)), read_result(folder)
    record = {
        "status": "running",
        "arm": arm,
        "seed": cfg.seed,
        "config": content,
        "n_parameters": experiment.n_parameters,
        "n_rows": experiment.data.n_rows,
        "encoder": experiment.source_id,
        "data": revision,
        "device": str(experiment.trainer.strategy.root_device),
        "n_processes": experiment.trainer.world_size,
        "monitor": f"val/{experiment.module.task.monitor}",
        "environment": now,
        "resumed_after_step": None if point is None else point["step"],
    }
    if process_rank() == 0:
        for name in OF_A_TRY if point is None else ("fault.json",):
            (folder / name).unlink(missing_ok=True)
        OmegaConf.save(OmegaConf.create(content), folder / "config.yaml")
        write_json(folder / "result.json", record)
        print_start(folder, experiment.n_parameters, experiment.data.n_rows)
        if point is not None:
            say(f"going on after step {point['step']}{code_changes(earlier, now)}")
    return record


def _work(
    cfg: DictConfig,
    folder: Path,
    experiment: Experiment,
    record: dict[str, Any],
    point: dict[str, Any] | None,
) -> list[dict[str, float]]:
    """Evaluate at step 0, fit, evaluate at the end of fit, test; the logged rows."""
    module, data, trainer = experiment.module, experiment.data, experiment.trainer
    params = {**record["config"], **experiment.n_parameters}
    open_loggers(trainer, experiment.loggers, folder, params, point["n_bytes"] if point else 0)
    if trainer.global_rank > 0:  # the weights are built: now dropout may differ
        pl.seed_everything(cfg.seed + trainer.global_rank, workers=True, verbose=False)
    stop = experiment.checkpoints
    stop.listen()
    times = [time.perf_counter()]
    if point is None:
        trainer.validate(module, datamodule=data, verbose=False)
    else:
        data.start = (point["epoch"], point["batches"])
    stop.if_asked()
    times.append(time.perf_counter())
    checkpoint = folder / "resume.ckpt" if point else None
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    stop.if_asked()
    if module.evaluated_step != trainer.global_step:
        trainer.validate(module, datamodule=data, verbose=False)
    stop.if_asked()
    times.append(time.perf_counter())
    if data.n_rows["test"]:
        trainer.test(module, datamodule=data, verbose=False)
    times.append(time.perf_counter())
    stop.listen(False)
    if cfg.checkpoint.final:
        trainer.save_checkpoint(folder / "last.ckpt", weights_only=True)
    seconds = [round(b - a, 2) for a, b in pairwise(times)]  # since the last start
    stages = ("first_evaluation", "fit", "test")
    record["timings_s"] = dict(zip(stages, seconds, strict=True))
    return read_rows(folder / "metrics.jsonl")


def _draw(rows: list[dict[str, float]], path: Path, title: str, score: str) -> None:
    """Draw the curves of a run that has its result; what goes wrong here costs nothing else."""
    try:
        draw_curves(rows, path, title, score)
    except Exception as error:  # whatever a plotting library may raise
        reason = redacted(f"{type(error).__name__}: {error}")
        say(f"{path} could not be drawn ({reason}); result.json and metrics.jsonl are complete")


def _record_failure(error: BaseException, folder: Path, record: dict[str, Any]) -> None:
    """Write down how a run ended before its end; a signal is an interruption."""
    stopped = isinstance(error, SystemExit | KeyboardInterrupt)
    record |= {
        "status": "interrupted" if stopped else "failed",
        "error": redacted(f"{type(error).__name__}: {error}"),
    }
    if process_rank() == 0:
        if stopped:
            kept = (folder / "resume.ckpt").is_file()
            say(f"{folder}: stopped; the same command {'goes on' if kept else 'starts again'}")
        with suppress(OSError):  # a full disk has its own message
            write_json(folder / "result.json", record)
            if isinstance(error, NonFiniteError):
                write_json(folder / "fault.json", error.report)


def _last_values(rows: list[dict[str, float]]) -> dict[str, float]:
    """The last logged value of every evaluation key."""
    values: dict[str, float] = {}
    for row in rows:
        values |= {k: v for k, v in row.items() if k.startswith(("val/", "test/", "isotropy/"))}
    return values


def quiet() -> None:
    """Silence notices that say nothing about the run."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*`broadcast_buffers` is deprecated.*",  # its successor is not in all torch versions
        ".*resuming from a checkpoint that ended before the epoch ended.*",  # ours goes on exactly
    ):
        warnings.filterwarnings("ignore", message=message)
