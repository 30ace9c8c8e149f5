"""Outputs of a command after a run: page, W&B media, summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isotrain.console import drawing, spinner
from isotrain.pages.summary import print_summary
from isotrain.runs.folder import RunFolder


def show_run(folder: RunFolder, loggers: Sequence[Any] = ()) -> None:
    """Draw the page, send W&B its media and print the summary; `show` of `isotrain.runner.run`.

    A failed run gets only its page, a run that was finished before only its summary.
    """
    is_finished = folder.record["status"] == "finished"
    if folder.record["config"]["report"] and not folder.note:
        with drawing(folder.path / "report.html", "the run is"):
            from isotrain.pages.report import write_report

            write_report(folder.path)
    if is_finished:
        print_summary(folder.record, folder.records(), folder.path, folder.note)
    if is_finished and (publishers := [logger for logger in loggers if hasattr(logger, "publish")]):
        from isotrain.pages.wandb_media import media, summary  # imports wandb

        with spinner("sending tables and pictures"):
            for publisher in publishers:
                publisher.publish(summary(folder.path), media(folder.path))
