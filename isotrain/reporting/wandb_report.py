"""The tables and the page of a study as one run of W&B, beside the runs that it is of."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrain.console import say
from isotrain.runs.secrets import redacted
from isotrain.studies.plan import Job

TABLES = ("table.csv", "runs.csv")
TEXT = {"runs", "task", "score", "arm", "N", "baseline", "method"}  # columns of words
TEXT |= {"best_of", "why_no_rows", "degenerate", "code", "data", "folder"}


def wandb_options(jobs: Sequence[Job]) -> dict[str, Any]:
    """How the runs of a study log to W&B; empty where they do not."""
    logger = jobs[0].of_pair.logger or {}
    return dict(logger["wandb"]) if "wandb" in logger else {}


def send(folder: Path, name: str, options: Mapping[str, Any]) -> None:
    """Log the tables and the page in a folder to a run of job_type `study`, in the study's group.

    Its id is kept in the folder, so that a later report continues it. Without network or key it
    stays on disk. Whatever goes wrong is told, and costs nothing else.
    """
    try:
        import wandb

        from isotrain.training.loggers.wandb_logger import (  # loads torch
            build_wandb_logger,
            staged_in,
        )

        run = build_wandb_logger(
            project=str(options["project"]),
            group=options.get("group") or name,
            save_dir=folder,
            name=name,
            job_type="study",
            tags=list(options["tags"]) if options.get("tags") else None,
            timeout_s=float(options.get("timeout_s", 30.0)),
        )
        found: dict[str, Any] = {}
        for file in TABLES:
            heading, *lines = csv.reader((folder / file).read_text("utf-8").splitlines())
            values = [[_value(*pair) for pair in zip(heading, line, strict=True)] for line in lines]
            found[Path(file).stem] = wandb.Table(columns=list[str | int](heading), data=values)
        if (page := folder / "study.html").is_file():
            found["page"] = wandb.Html(page.read_text("utf-8"), inject=False)
        with staged_in(Path(run.experiment.dir).parent):
            run.experiment.log(found)
        run.close(failed=False)
    except Exception as error:  # whatever the service or its package raises
        say(f"W&B: the report was not sent ({redacted(f'{type(error).__name__}: {error}')})")


def _value(column: str, text: str) -> str | float | None:
    """A text, or a number or nothing in a column of numbers.

    >>> _value("mean", "0.5"), _value("mean", ""), _value("arm", "0.5")
    (0.5, None, '0.5')
    """
    return text if column in TEXT else float(text) if text else None
