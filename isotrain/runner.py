"""One run: seed, build, evaluate, fit, test, record; or resume from a checkpoint."""

import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig

from isotrain.build import Experiment, build
from isotrain.config.check import check
from isotrain.config.compose import run_folder
from isotrain.config.parts import raised_at
from isotrain.console import print_changes, print_phases, print_start, process_rank, say, spinner
from isotrain.encoders.start import start_file
from isotrain.model.checkpoint import load_checkpoint, save_weights
from isotrain.runs.files import WEIGHTS_FILE, DamagedError, put_aside, sha256_of
from isotrain.runs.folder import RunFolder
from isotrain.runs.lost_input import lost_text
from isotrain.runs.record import CannotRunError, check_writable, storage_failures
from isotrain.runs.secrets import redacted
from isotrain.tasks.data.sources import commit_of
from isotrain.training.callbacks.collapse import degenerate
from isotrain.training.callbacks.non_finite import NonFiniteError
from isotrain.training.callbacks.resume import KEY
from isotrain.training.failures import explained
from isotrain.training.freezing_schedule import describe
from isotrain.training.isolation import isolated
from isotrain.training.loggers.jsonl import close_loggers, open_loggers
from isotrain.training.revision import revision

THREADS = torch.get_num_threads()  # torch's own choice; a run in this process may set another
Show = Callable[[RunFolder, Sequence[Any]], None]  # called with a run's folder and its loggers


@isolated()
def run(
    cfg: DictConfig,
    overrides: Sequence[str] = (),
    show: Show = lambda folder, loggers: None,
    callbacks: Sequence[pl.Callback] = (),
) -> dict[str, float]:
    """Train a run, or read it if finished; its final scores, such as `val/accuracy`.

    The run folder, `folder_of(cfg)`, receives `config.yaml`, `metrics.jsonl`, `snapshots/`,
    `predictions/`, `result.json` and `weights.safetensors`. An interrupted run resumes from
    `resume.ckpt`. Only rank 0 writes and returns scores. The state of the process is restored: a
    run is bit-identical in a new process and in a worker after other runs.

    Args:
        cfg: the configuration.
        overrides: the overrides behind `cfg`, for the record.
        show: called on rank 0 after the record is written, even for a failed run, and before the
            loggers are closed. The command passes `isotrain.pages.show.show_run`, which writes the
            page (`cfg.report`) and prints the summary.
        callbacks: of Lightning, in addition to isotrain's, such as `Pruning`.

    Raises:
        CannotRunError: a ValueError: the configuration is invalid, parts are incompatible, data or
            weights are missing. No run folder is written.
        MemoryLimitError: memory is full; the run resumes.
        LostRankError: another process of the run ended or does not answer; the run resumes.
        NonFiniteError: a loss, gradient or weight was not finite; `fault.json` has the details.
        StorageError: the folder is full, read-only or gone; the last checkpoint is intact.
    """
    start_time = time.perf_counter()
    try:
        check(cfg)
        cfg = explicit(cfg)
        torch.set_num_threads(cfg.threads)
        os.environ["OMP_NUM_THREADS"] = str(cfg.threads)  # else ranks would be given another
        start = start_file(cfg.init_from, cfg.encoder)
        init_from = start and {"path": cfg.init_from, "sha256": sha256_of(start)}
        folder = RunFolder(cfg, revision(cfg), overrides, process_rank() == 0)
        if folder.is_finished():
            return _stored(folder, show)
        quiet()
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        check_writable(folder.path)
        with spinner("preparing the run"):
            experiment = build(cfg, folder.path, start, callbacks)
    except Exception as error:  # torch, Lightning and omegaconf raise many kinds
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        raise CannotRunError(redacted(f"{kind}{error}{kind and raised_at(error)}")) from error
    with storage_failures(folder.path), folder.owned():
        if folder.is_finished():  # by another process meanwhile
            return _stored(folder, show)
        point = _resume_point(folder, experiment) if folder.may_resume() else None
        _begin(folder, _facts(experiment) | {"init_from": init_from}, point)
        try:
            with explained():
                timings = _work(cfg, folder, experiment, point)
            timings["total"] = round(time.perf_counter() - start_time, 2)
            folder.finished(_outcome(folder, experiment, timings))
        except BaseException as error:
            folder.failed(error, error.report if isinstance(error, NonFiniteError) else None)
            if isinstance(error, OSError):  # a page would fail too
                raise
            is_failed = folder.record["status"] == "failed"
            if folder.is_first and is_failed:
                show(folder, experiment.trainer.loggers)
            elif folder.is_first:  # a signal, which may leave only seconds
                verb = "resumes" if folder.may_resume() else "starts anew"
                say(f"{folder.path}: stopped; the same command {verb}")
            if is_failed and isinstance(error, SystemExit):
                raise RuntimeError(f"a part of the run exited with code {error.code}") from error
            raise
        else:
            if folder.is_first:
                show(folder, experiment.trainer.loggers)
        finally:
            experiment.checkpoints.listen(False)
            with spinner("closing the loggers"):
                close_loggers(experiment.trainer, failed=folder.record["status"] != "finished")
    return dict(folder.record["scores"]) if folder.is_first else {}


def explicit(cfg: DictConfig) -> DictConfig:
    """`cfg` with the number of threads and the commit of `data.hub`: results depend on them."""
    cfg = cfg.copy()
    cfg.threads = cfg.threads or THREADS
    if cfg.data.hub:
        cfg.data.revision = commit_of(cfg.data.hub, cfg.data.revision)
    return cfg


def folder_of(cfg: DictConfig) -> Path:
    """The folder of a run, named by its content and current data revision."""
    cfg = explicit(cfg)
    return run_folder(cfg, revision(cfg))


def _stored(folder: RunFolder, show: Show) -> dict[str, float]:
    """Show an already finished run again; its scores."""
    if folder.is_first:
        show(folder, ())
    return dict(folder.record["scores"]) if folder.is_first else {}


def _resume_point(folder: RunFolder, experiment: Experiment) -> dict[str, Any] | None:
    """isotrain's part of the checkpoint of an unfinished run; None restarts it.

    The run restarts if a file needed to resume is damaged. That file and the checkpoint are kept
    under other names. Lightning rejects a checkpoint of another model.
    """
    path = folder.path / "resume.ckpt"
    try:
        point: dict[str, Any] | None = load_checkpoint(path).get(KEY)
        if point is None:
            raise DamagedError(path, "it is no checkpoint to resume from")
        experiment.selection.load_best(point["selection"], point["step"])
        folder.check_records(point["n_bytes"], point["records_sha256"])
    except DamagedError as error:
        if folder.is_first:  # the others restart too; `TaskData.setup` checks that all agree
            asides = ", ".join(aside.name for aside in put_aside(path, error.path))
            say(f"{error.path} is damaged ({error.reason}); starting anew, with {asides} kept")
        return None
    return point


def _begin(folder: RunFolder, facts: dict[str, Any], point: dict[str, Any] | None) -> None:
    """Write the initial record of a run, and print its folder and what trains."""
    code_note = folder.begin(facts, None if point is None else point["step"])
    if not folder.is_first:
        return
    trains = 0 not in (folder.cfg.trainer.get("max_epochs"), folder.cfg.trainer.get("max_steps"))
    print_start(folder.path, facts["n_parameters"], facts["n_rows"], trains)
    if trains:
        print_phases(facts["phases"], facts["n_parameters"])
    for text in (facts["drawn_splits"] and f"drawn: {facts['drawn_splits']}", facts["labels"]):
        if text:
            say(text)
    if facts["data_changes"] or facts["limited_evaluation"]:
        print_changes(facts["data_changes"], facts["limited_evaluation"])
    if facts["lost_input"]:
        say(f"input: {lost_text(facts['lost_input'])}")
    if point is not None:
        say(f"resuming after step {point['step']}{code_note}")


def _facts(experiment: Experiment) -> dict[str, Any]:
    """Facts about the parts of a run, for its record."""
    module = experiment.module
    return {
        "n_parameters": experiment.n_parameters,
        "phases": describe(experiment.plan, module, module.model.encoder, module.new_optimizer()),
        "n_rows": experiment.data.n_rows,
        "lost_input": experiment.data.lost_input,
        "data_changes": experiment.data.changed,
        "limited_evaluation": experiment.data.limited,
        "drawn_splits": experiment.data.source.split_note,
        "labels": module.task.labels(),
        "scale": module.task.scale,
        "label_majority": experiment.data.label_majority,
        "encoder": experiment.source_id,
        "width": module.model.encoder.width,
        "is_causal": module.model.encoder.is_causal,
        "device": str(experiment.trainer.strategy.root_device),
        "n_processes": experiment.trainer.world_size,
        "classes": list(module.task.data_set.classes),
        "monitor": f"val/{experiment.module.task.monitor}",
        "mode": experiment.module.task.mode,
        "headline": experiment.headline,
        "speed": experiment.paths,
    }


def _work(
    cfg: DictConfig, folder: RunFolder, experiment: Experiment, point: dict[str, Any] | None
) -> dict[str, float]:
    """Evaluate at step 0, fit, evaluate, test; the seconds of each."""
    module, data, trainer = experiment.module, experiment.data, experiment.trainer
    params = {**folder.record["config"], **experiment.n_parameters, "n_rows": data.n_rows}
    n_bytes = point["n_bytes"] if point else 0
    open_loggers(trainer, experiment.loggers, folder.path, params, n_bytes)
    if trainer.global_rank > 0:  # weights are initialised: from now on dropout may differ by rank
        pl.seed_everything(cfg.seed + trainer.global_rank, workers=True, verbose=False)
    checkpoints = experiment.checkpoints
    checkpoints.listen()
    times = [time.perf_counter()]
    if point is None:
        trainer.validate(module, datamodule=data, verbose=False)
        if cfg.training.test_untrained and data.n_rows["test"]:
            trainer.test(module, datamodule=data, verbose=False)
    checkpoints.if_asked()
    times.append(time.perf_counter())
    checkpoint = folder.path / "resume.ckpt" if point else None
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    checkpoints.if_asked()
    if module.evaluated_step != trainer.global_step:
        trainer.validate(module, datamodule=data, verbose=False)
    checkpoints.if_asked()
    if experiment.selection.restore(trainer, module):
        trainer.validate(module, datamodule=data, verbose=False)
    checkpoints.if_asked()
    times.append(time.perf_counter())
    if data.n_rows["test"]:
        trainer.test(module, datamodule=data, verbose=False)
    times.append(time.perf_counter())
    checkpoints.listen(False)
    if cfg.checkpoint.final and folder.is_first:
        with spinner(f"writing {WEIGHTS_FILE}"):
            save_weights(module.state_dict(), folder.path / WEIGHTS_FILE)
    seconds = [round(b - a, 2) for a, b in pairwise(times)]  # since the last start
    return dict(zip(("first_evaluation", "fit", "test"), seconds, strict=True))


def _outcome(
    folder: RunFolder, experiment: Experiment, timings_s: dict[str, float]
) -> dict[str, Any]:
    """Steps, scores and times of a finished run, for its record."""
    n_steps, scores = experiment.trainer.global_step, folder.scores()
    reason = degenerate(scores, folder.record["monitor"])
    keeps = folder.is_first and folder.cfg.checkpoint.final
    return {
        "steps": n_steps,
        "scores": scores,
        "weights_sha256": sha256_of(folder.path / WEIGHTS_FILE) if keeps else None,
        "timings_s": timings_s,
        **experiment.selection.facts(n_steps),
        "stopped_early": experiment.trainer.should_stop,
        "degenerate": bool(reason),
        "degenerate_reason": reason,
    }


def quiet() -> None:
    """Silence warnings that are irrelevant to the run."""
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("pytorch_lightning.profilers").setLevel(logging.INFO)  # their report
    for message in (
        ".*does not have many workers.*",
        ".*`srun` command is available.*",
        ".*isinstance.treespec, LeafSpec.*",
        ".*number of training batches .* is smaller than the logging interval.*",
        ".*`broadcast_buffers` is deprecated.*",  # the replacement is not in all torch versions
        ".*resuming from a checkpoint that ended before the epoch ended.*",  # ours resumes exactly
    ):
        warnings.filterwarnings("ignore", message=message)
