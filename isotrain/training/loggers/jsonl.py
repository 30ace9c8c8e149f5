"""`metrics.jsonl`: every logged record; W&B and TensorBoard get its few scalars from here."""

import time
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from isotrain.console import say
from isotrain.runs.files import RecordFile
from isotrain.runs.keys import few
from isotrain.runs.secrets import redacted
from isotrain.training.data import process_rank
from isotrain.types import Batch


class ResumableLogger(Logger):
    """A logger that knows which records it already has, and how to end its run."""

    n_records_held: int = 0  # records that it already has and must not get again

    def close(self, failed: bool) -> None:
        """End the run at the service, if any."""


class RecordLog(Logger):
    """Write records to a file, and their scalars (`isotrain.runs.keys.few`) to other loggers.

    After a resume a `ResumableLogger` gets each record once; any other logger may have the latest
    one twice after a kill. A logger that fails is dropped with a notice. Only rank 0 writes. The
    isotropy values of `headline` metrics are among the scalars.
    """

    def __init__(
        self, path: str | Path, others: Sequence[Logger] = (), headline: Collection[str] = ()
    ) -> None:
        super().__init__()
        self.file, self.headline = RecordFile(path), tuple(headline)
        self.opened = tuple(others)  # to close at the end, including dropped ones
        self._held = dict.fromkeys(others, 0)  # of the others, the records that each already has
        self._trained: list[tuple[int, Tensor, float]] = []  # see `count`
        self._started = time.perf_counter()

    @property
    def name(self) -> str:
        """Name of this logger."""
        return "records"

    @property
    def version(self) -> int:
        """One file per run folder."""
        return 0

    @rank_zero_only
    def resume(self, n_bytes: int) -> None:
        """Truncate the file to the `n_bytes` of a checkpoint, and append from there.

        A `ResumableLogger` gets its missing records; others are assumed to have all.
        """
        n_before = self.file.path.read_bytes().count(b"\n") if self._held and n_bytes else 0
        records = self.file.cut(n_bytes)
        self._started -= records[-1]["time_s"] if records else 0.0
        self._held = {
            other: other.n_records_held if isinstance(other, ResumableLogger) else n_before
            for other in self._held
        }
        for number, record in enumerate(records):
            kept = {key: value for key, value in record.items() if key not in ("step", "time_s")}
            self._pass_on(number, kept, int(record["step"]))

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Forward to the others; for the file, `config.yaml` has the configuration."""
        self.each(lambda other: other.log_hyperparams(params))

    @rank_zero_only
    def count(self, n_examples: int, n_tokens: Tensor, seconds: float) -> None:
        """Count a training batch towards the throughput in the next record."""
        self._trained.append((n_examples, n_tokens, seconds))

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write one record."""
        metrics = dict(metrics)
        if self._trained and "train/loss" in metrics:
            n_examples, n_tokens, times = zip(*self._trained, strict=True)
            self._trained = []
            metrics["speed/examples_per_second"] = sum(n_examples) / sum(times)
            metrics["speed/tokens_per_second"] = float(sum(n_tokens)) / sum(times)
        self._pass_on(self.file.n_records, metrics, step)
        seconds = round(time.perf_counter() - self._started, 3)
        self.file.append({"step": step, "time_s": seconds, **metrics})

    @rank_zero_only
    def save(self) -> None:
        """Flush the others; the file is flushed at every record."""
        self.each(lambda other: other.save())

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the others."""
        self.each(lambda other: other.finalize(status))

    def _pass_on(self, number: int, metrics: Mapping[str, float], step: int | None) -> None:
        scalars = few(metrics, self.headline)

        def send(other: Logger) -> None:
            if number >= self._held[other]:
                other.log_metrics(scalars, step)

        self.each(send)

    def each(self, action: Callable[[Logger], Any]) -> None:
        """Apply an action to every other logger; one that fails is dropped."""
        for other in list(self._held):
            try:
                action(other)
            except Exception as error:  # whatever a third party's logger may raise
                del self._held[other]
                say(left_out(type(other).__name__, error))


class Throughput(pl.Callback):
    """Log examples and tokens per second of training steps, over all processes.

    Excludes data loading, evaluation and monitor; all processes are assumed to have as many tokens
    as rank 0.
    """

    _started = 0.0

    def on_train_batch_start(self, *_: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Count the batch without device synchronisation."""
        seconds, world = time.perf_counter() - self._started, trainer.world_size
        for log in trainer.loggers:
            if isinstance(log, RecordLog):
                log.count(world * len(batch.labels), world * batch.attention_mask.sum(), seconds)


class EvaluationRecords(pl.Callback):
    """Write each evaluation as one record: scores and counters, and the monitor's values.

    Scores are logged with `logger=False`, so that Lightning writes no record of its own.

    Args:
        measured: gives the monitor's values of the latest validation.
    """

    def __init__(self, measured: Callable[[], Mapping[str, float]] = dict) -> None:
        super().__init__()
        self.measured = measured

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the record of dev and of held-out training examples."""
        self._write(trainer, pl_module.weights_step, ("val/", "holdout/"), self.measured())

    def on_test_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the record of test."""
        self._write(trainer, pl_module.weights_step, ("test/",), {})

    def _write(
        self, trainer: pl.Trainer, step: int, stages: tuple[str, ...], more: Mapping[str, float]
    ) -> None:
        for log in trainer.loggers:
            log.log_metrics({**scores_of(trainer, stages), **more}, step)
            log.save()


def scores_of(trainer: pl.Trainer, stages: tuple[str, ...]) -> dict[str, float]:
    """Scores, losses and counters of the latest evaluation, of the stages by prefix."""
    logged = trainer.callback_metrics.items()
    return {key: value.item() for key, value in logged if key.startswith(stages)}


def left_out(name: str, error: Exception) -> str:
    """The notice of a logger that failed."""
    reason = redacted(f"{type(error).__name__}: {error}")
    return f"{name} failed and is left out from here on ({reason}); metrics.jsonl has every record"


def open_loggers(
    trainer: pl.Trainer,
    builders: Mapping[str, Callable[..., Logger]],
    folder: Path,
    params: dict[str, Any],
    n_bytes: int,
    headline: Collection[str],
) -> None:
    """Give the trainer a `RecordLog` with the loggers of `builders`, (save_dir, name) -> logger.

    Only rank 0 opens any; one that cannot be opened is dropped with a notice. `params` are those
    of the run, without secrets; `n_bytes` of `metrics.jsonl` are kept.
    """
    others = []
    if process_rank() == 0:
        name = f"{folder.parent.name}-{folder.name}-seed{params['seed']}"
        for key, build_logger in builders.items():
            try:
                others.append(build_logger(save_dir=str(folder), name=name))
            except Exception as error:  # whatever a third party's logger may raise
                say(left_out(f"logger.{key}", error))
    log = RecordLog(folder / "metrics.jsonl", others, headline)
    trainer.loggers = [log]
    log.log_hyperparams(params)
    log.resume(n_bytes)


def close_loggers(trainer: pl.Trainer, failed: bool) -> None:
    """Close all loggers, including dropped ones: their runs are open at a service."""
    for log in trainer.loggers:
        log.finalize("failed" if failed else "success")
        for logger in log.opened if isinstance(log, RecordLog) else ():
            try:
                if isinstance(logger, ResumableLogger):
                    logger.close(failed)
                elif isinstance(logger, WandbLogger):  # Lightning's: the next run would join it
                    logger.experiment.finish(exit_code=int(failed))
            except Exception as error:  # whatever a third party's logger may raise
                say(left_out(type(logger).__name__, error))
