"""The loggers of a run: the file of rows, and those that get the same rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger, WandbLogger

from isotrain.training.row_log import RowLog, left_out
from isotrain.training.same_config import process_rank


def open_loggers(
    trainer: pl.Trainer,
    builders: Mapping[str, Callable[..., Logger]],
    folder: Path,
    params: dict[str, Any],
    n_bytes: int,
    headline: Collection[str],
) -> None:
    """Give the trainer `metrics.jsonl` with the other loggers behind it.

    Args:
        trainer: whose rows are logged.
        builders: (save_dir, name) -> logger, by name; only the first process opens any, and one
            that cannot be opened is told and left out.
        folder: of the run.
        params: of the run, without secrets; `seed` among them.
        n_bytes: of `metrics.jsonl` that are kept; 0 starts it anew.
        headline: metrics whose isotropy values the other loggers get.
    """
    others = []
    if process_rank() == 0:
        name = f"{folder.parent.name}-{folder.name}-seed{params['seed']}"
        for key, build_logger in builders.items():
            try:
                others.append(build_logger(save_dir=str(folder), name=name))
            except Exception as error:  # whatever a third party's logger may raise
                print(left_out(f"logger.{key}", error))
    log = RowLog(folder / "metrics.jsonl", others, headline)
    trainer.loggers = [log]
    log.log_hyperparams(params)
    log.resume(n_bytes)


def close_loggers(trainer: pl.Trainer, failed: bool) -> None:
    """Close them all, also those that were left out: their runs are open at a service.

    One with a method `close(failed)` ends its run there.
    """
    for log in trainer.loggers:
        log.finalize("failed" if failed else "success")
        for logger in getattr(log, "opened", ()):
            try:
                _close(logger, failed)
            except Exception as error:  # whatever a third party's logger may raise
                print(left_out(type(logger).__name__, error))


def _close(logger: Logger, failed: bool) -> None:
    if hasattr(logger, "close"):
        logger.close(failed)
    elif isinstance(logger, WandbLogger):  # Lightning's own; the next run would go on in its run
        import wandb

        if wandb.run is not None:
            wandb.run.finish(exit_code=int(failed))
