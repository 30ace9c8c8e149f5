"""The loggers of a run: the file of rows, and those that get the same rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger

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
    """Close them all; W&B too, or the next run of this process would continue its run."""
    for logger in trainer.loggers:
        logger.finalize("failed" if failed else "success")
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        try:
            wandb.finish(exit_code=int(failed))
        except Exception as error:
            print(left_out("wandb", error))
