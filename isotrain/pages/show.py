"""Outputs of a command after a run: page, W&B media, summary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrain.console import drawing, spinner
from isotrain.pages.summary import print_summary
from isotrain.runs.folder import RunFolder

if TYPE_CHECKING:  # a page needs no torch
    from isotrain.training.loggers.jsonl import RecordLog


def show_run(folder: RunFolder, loggers: Sequence[RecordLog] = ()) -> None:
    """Draw the page, send W&B its media and print the summary; `show` of `isotrain.run.run`.

    A run that failed has its page alone, one that was finished before its summary alone.
    """
    is_finished = folder.record["status"] == "finished"
    if folder.record["config"]["report"] and not folder.note:
        with drawing(folder.path / "report.html", "the run is"):
            from isotrain.pages.report import write_report  # matplotlib takes its time

            write_report(folder.path)
    if is_finished and loggers:
        with spinner("sending tables and pictures"):
            for log in loggers:
                log.each(partial(_send_media, folder.path))
    if is_finished:
        print_summary(folder.record, folder.records(), folder.path, folder.note)


def _send_media(folder: Path, logger: Any) -> None:
    if hasattr(logger, "publish"):
        from isotrain.pages.wandb_media import media, summary  # imports wandb and matplotlib

        logger.publish(summary(folder), media(folder))
