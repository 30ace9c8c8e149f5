"""One run from start to end: seed, build, evaluate, fit, test, record; or on from a checkpoint."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf

from isotrain.build import Experiment, build, data_revision
from isotrain.config.rules import check
from isotrain.console import say, working
from isotrain.encoders.finished_run import sha256_of, start_file
from isotrain.pages.summary import print_summary
from isotrain.run_folder import RunFolder
from isotrain.runs.record import CannotRunError, StorageError, check_writable, storage_failure
from isotrain.runs.secrets import redacted
from isotrain.training.freezing import describe
from isotrain.training.loggers.jsonl import close_loggers, open_loggers


def run(
    cfg: DictConfig, arm: str, overrides: Sequence[str] = (), search: str = ""
) -> dict[str, float]:
    """The final scores of a run, such as `val/accuracy`; trained now, or read where finished.

    The run folder is `<output_dir>/<task>/<arm>-<content hash>`. It receives `config.yaml`,
    `metrics.jsonl`, `snapshots/`, `predictions/`, `result.json`, `last.ckpt`, `report.html` and
    `figures/`. A run that was stopped goes on from `resume.ckpt`. Processes other than the first
    of a distributed run write nothing and return nothing.

    `overrides`, those that gave the configuration, are kept for the record, and so is `search`,
    the name of one that the run is a trial of.

    Raises:
        CannotRunError: a ValueError: a configuration that cannot run, parts that do not fit, data
            or weights that are not there; nothing is written then.
        NonFiniteError: training left the numbers; `fault.json` tells where.
        StorageError: the folder is full or read-only; the last checkpoint is intact.
    """
    started = time.perf_counter()
    try:
        check(cfg)
        cfg = with_threads(cfg)
        torch.set_num_threads(cfg.threads)
        os.environ["OMP_NUM_THREADS"] = str(cfg.threads)  # else ranks would be given another
        start = _start(cfg)
        revision = data_revision(cfg) + (f"; init_from {start['sha256'][:12]}" if start else "")
        folder = RunFolder(cfg, arm, revision, overrides, search)
        if stored := folder.stored():
            return stored
        quiet()
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        check_writable(folder.path)
        with working("preparing the run"):
            experiment = build(cfg, folder.path)
    except (ValueError, OSError, MisconfigurationException) as error:
        raise CannotRunError(redacted(str(error))) from error
    with folder.owned():
        if folder.is_first and (stored := folder.stored()):  # by another meanwhile
            return stored
        point = folder.resume_point()
        folder.begin(_facts(experiment) | {"init_from": start}, point)
        try:
            timings = _work(cfg, folder, experiment, point)
            timings["total"] = round(time.perf_counter() - started, 2)
            n_steps = experiment.trainer.global_step
            folder.finished(n_steps, timings, experiment.selection.facts(n_steps))
        except BaseException as error:
            folder.failed(error)
            if isinstance(error, OSError) and (sentence := storage_failure(error, folder.path)):
                raise StorageError(sentence) from error
            if isinstance(error, Exception) and folder.is_first and cfg.report:
                _draw(folder.path)  # not at a signal, which may leave seconds
            raise
        else:
            if folder.is_first and cfg.report:
                _draw(folder.path)
            with working("showing the run to its loggers"):
                for logger in experiment.trainer.loggers:
                    logger.publish(folder.path)  # type: ignore[attr-defined]
        finally:
            experiment.checkpoints.listen(False)
            with working("closing the loggers"):
                close_loggers(experiment.trainer, failed=folder.record["status"] != "finished")
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        if not folder.is_first:
            return {}
    print_summary(folder.record, folder.rows(), folder.path)
    return dict(folder.record["scores"])


def with_threads(cfg: DictConfig) -> DictConfig:
    """`cfg` with the number of threads spelled out: results depend on it."""
    merged = OmegaConf.merge(cfg, {"threads": cfg.threads or torch.get_num_threads()})
    assert isinstance(merged, DictConfig)
    return merged


def _start(cfg: DictConfig) -> dict[str, str] | None:
    """The run that the encoder starts from, for the record; None where there is none."""
    file = start_file(cfg.init_from, cfg.encoder)
    return None if file is None else {"path": cfg.init_from, "sha256": sha256_of(file)}


def _facts(experiment: Experiment) -> dict[str, Any]:
    """What the parts of a run say of themselves, for its record."""
    module = experiment.module
    return {
        "n_parameters": experiment.n_parameters,
        "phases": describe(experiment.plan, module, module.model.encoder, module.new_optimizer()),
        "n_rows": experiment.data.n_rows,
        "left_out": experiment.module.task.left_out,
        "data_changes": experiment.data.changed,
        "encoder": experiment.source_id,
        "width": module.model.encoder.width,
        "is_causal": module.model.encoder.is_causal,
        "device": str(experiment.trainer.strategy.root_device),
        "n_processes": experiment.trainer.world_size,
        "monitor": f"val/{experiment.module.task.monitor}",
        "mode": experiment.module.task.mode,
        "headline": experiment.headline,
    }


def _work(
    cfg: DictConfig, folder: RunFolder, experiment: Experiment, point: dict[str, Any] | None
) -> dict[str, float]:
    """Evaluate at step 0, fit, evaluate at the end of fit, test; the seconds of each."""
    module, data, trainer = experiment.module, experiment.data, experiment.trainer
    params = {**folder.record["config"], **experiment.n_parameters}
    n_bytes = point["n_bytes"] if point else 0
    open_loggers(trainer, experiment.loggers, folder.path, params, n_bytes, experiment.headline)
    if trainer.global_rank > 0:  # the weights are built: now dropout may differ
        pl.seed_everything(cfg.seed + trainer.global_rank, workers=True, verbose=False)
    stop = experiment.checkpoints
    stop.listen()
    times = [time.perf_counter()]
    if point is None:
        trainer.validate(module, datamodule=data, verbose=False)
    stop.if_asked()
    times.append(time.perf_counter())
    checkpoint = folder.path / "resume.ckpt" if point else None
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    stop.if_asked()
    if module.evaluated_step != trainer.global_step:
        trainer.validate(module, datamodule=data, verbose=False)
    stop.if_asked()
    if experiment.selection.restore(trainer, module):
        trainer.validate(module, datamodule=data, verbose=False)
    stop.if_asked()
    times.append(time.perf_counter())
    if data.n_rows["test"]:
        trainer.test(module, datamodule=data, verbose=False)
    times.append(time.perf_counter())
    stop.listen(False)
    if cfg.checkpoint.final:
        with working("writing last.ckpt"):
            trainer.save_checkpoint(folder.path / "last.ckpt", weights_only=True)
    seconds = [round(b - a, 2) for a, b in pairwise(times)]  # since the last start
    return dict(zip(("first_evaluation", "fit", "test"), seconds, strict=True))


def _draw(folder: Path) -> None:
    """The page of a run that has its result; what goes wrong here costs nothing else."""
    try:
        with working("drawing report.html"):
            from isotrain.pages.report import write_report  # matplotlib takes its time

            write_report(folder)
    except Exception as error:  # whatever a plotting library may raise
        reason = redacted(f"{type(error).__name__}: {error}")
        say(f"{folder / 'report.html'} could not be drawn ({reason}); the run is complete")


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
