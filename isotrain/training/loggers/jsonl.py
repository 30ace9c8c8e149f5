"""`metrics.jsonl`: every logged record; other loggers get its few scalars."""

import time
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, WandbLogger
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from isotrain.console import process_rank, say
from isotrain.runs.files import RecordFile
from isotrain.runs.keys import few
from isotrain.runs.secrets import redacted
from isotrain.training.loggers.wandb_logger import WandbRun
from isotrain.types import Batch


class RecordLog(Logger):
    """Write every record to a file. Only rank 0 writes."""

    name, version = "records", 0

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.file = RecordFile(path)
        self._started = time.perf_counter()

    @rank_zero_only
    def resume(self, n_bytes: int) -> None:
        """Truncate the file to the `n_bytes` of a checkpoint, and append from there."""
        records = self.file.cut(n_bytes)
        self._started -= records[-1]["time_s"] if records else 0.0

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Nothing: `config.yaml` has the configuration."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write one record."""
        seconds = round(time.perf_counter() - self._started, 3)
        self.file.append({"step": step, "time_s": seconds, **metrics})


class Throughput(pl.Callback):
    """Log examples and tokens per second of training steps, over all processes.

    Excludes data loading, evaluation and monitor; all processes are assumed to have as many tokens
    as rank 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self._started = 0.0
        self._batches: list[tuple[int, Tensor, float]] = []  # examples, tokens and seconds of each

    def on_train_batch_start(self, *_: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Count the batch; device synchronisation is left to the steps that are recorded."""
        seconds, world = time.perf_counter() - self._started, trainer.world_size
        n_tokens = world * batch.attention_mask.sum()
        self._batches.append((world * len(batch.labels), n_tokens, seconds))
        if pl_module.is_record_due:
            n_examples, tokens, total_s = map(sum, zip(*self._batches, strict=True))
            self._batches = []
            pl_module.of_callbacks |= {
                "speed/examples_per_second": n_examples / total_s,
                "speed/tokens_per_second": float(tokens) / total_s,
            }


class EvaluationRecords(pl.Callback):
    """Write each evaluation as one record: scores and counters, and the monitor's values.

    Scores are logged with `logger=False`, so that Lightning writes no record of its own.

    Args:
        measured: gives the monitor's values of the latest validation.
        headline: metrics whose isotropy values go to loggers other than the file.
    """

    def __init__(
        self, measured: Callable[[], Mapping[str, float]] = dict, headline: Collection[str] = ()
    ) -> None:
        super().__init__()
        self.measured, self.headline = measured, headline

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the record of dev and of held-out training examples."""
        values = {**scores_of(trainer, ("val/", "holdout/")), **self.measured()}
        send(trainer, values, self.headline, pl_module.weights_step)

    def on_test_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write the record of test."""
        send(trainer, scores_of(trainer, ("test/",)), self.headline, pl_module.weights_step)


def scores_of(trainer: pl.Trainer, stages: tuple[str, ...]) -> dict[str, float]:
    """Scores, losses and counters of the latest evaluation, of the stages by prefix."""
    metrics = trainer.callback_metrics.items()
    return {key: value.item() for key, value in metrics if key.startswith(stages)}


def send(
    trainer: pl.Trainer, values: Mapping[str, float], headline: Collection[str], step: int
) -> None:
    """Log one record: all values to a file, the few scalars of `few` to other loggers."""
    for logger in trainer.loggers:
        is_file = isinstance(logger, RecordLog)
        logger.log_metrics(dict(values) if is_file else few(values, headline), step)
        logger.save()


def open_loggers(
    trainer: pl.Trainer,
    builders: Mapping[str, Callable[..., Logger]],
    folder: Path,
    params: dict[str, Any],
    n_bytes: int,
) -> None:
    """Give the trainer a `RecordLog` and the loggers of `builders`, any of Lightning's.

    A builder that takes `save_dir` and `name`, and was not given them, gets the run's folder and
    its name. Only rank 0 opens the loggers; one that cannot be opened is left out with a notice.
    `params` are those of the run, without secrets; `n_bytes` of `metrics.jsonl` are kept.
    """
    log = RecordLog(folder / "metrics.jsonl")
    log.resume(n_bytes)
    trainer.loggers = [log]
    run_name = f"{folder.parent.name}-{folder.name}-seed{params['seed']}"
    defaults = {"save_dir": str(folder), "name": run_name}
    for key, builder in builders.items() if process_rank() == 0 else ():
        try:
            keywords = getattr(builder, "keywords", {})  # by its yaml
            unset_names = signature(builder).parameters.keys() - keywords.keys()
            logger = builder(**{name: defaults[name] for name in defaults.keys() & unset_names})
            logger.log_hyperparams(params)
            trainer.loggers.append(logger)
        except Exception as error:  # whatever a third party's logger may raise
            reason = redacted(f"{type(error).__name__}: {error}")
            say(f"logger.{key} is left out ({reason}); metrics.jsonl has every record")


def close_loggers(trainer: pl.Trainer, failed: bool) -> None:
    """Close all loggers: their runs are open at a service."""
    for logger in trainer.loggers:
        try:
            if isinstance(logger, WandbRun):
                logger.close(failed)
            elif isinstance(logger, WandbLogger):  # Lightning's: the next run would join it
                logger.experiment.finish(exit_code=int(failed))
            else:
                logger.finalize("failed" if failed else "success")
        except Exception as error:  # whatever a third party's logger may raise
            reason = redacted(f"{type(error).__name__}: {error}")
            say(f"{type(logger).__name__} was not closed ({reason})")
