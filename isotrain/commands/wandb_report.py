"""Upload to W&B after the fact: a finished run, or the tables and page of a study."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotrain.console import say, spinner
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import few
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import PlanError

if TYPE_CHECKING:
    from pandas import DataFrame


def send(
    folder: Path, name: str, options: Mapping[str, Any], tables: Mapping[str, DataFrame]
) -> None:
    """Log a study's tables and page to a run of job_type `study`, in the study's group.

    Its id is kept in the folder, so that a later report continues it. Without network or key it
    stays on disk. Errors are reported and have no other effect.
    """
    try:
        import wandb

        from isotrain.training.loggers.wandb_logger import build_wandb_logger  # loads torch

        run = build_wandb_logger(
            project=str(options["project"]),
            group=options.get("group") or name,
            save_dir=folder,
            name=name,
            job_type="study",
            tags=list(options["tags"]) if options.get("tags") else None,
            timeout_s=float(options.get("timeout_s", 30.0)),
        )
        found: dict[str, Any] = {
            key: wandb.Table(dataframe=table.astype(object).where(table.notna(), None))
            for key, table in tables.items()
        }
        if (page := folder / "study.html").is_file():
            found["page"] = wandb.Html(page.read_text("utf-8"), inject=False)
        run.experiment.log(found)
        run.close(failed=False)
    except Exception as error:  # the service or its package may raise anything
        say(f"W&B: the report was not sent ({redacted(f'{type(error).__name__}: {error}')})")


def send_run(folder: Path, project: str) -> None:
    """Log a finished run to W&B: curves, summary, tables and pictures, as `logger=[wandb]` does.

    Its id is kept in the folder, so that repeated uploads do not duplicate it. Without network or
    key it stays on disk, and the upload command is printed.

    Raises:
        PlanError: the run has not finished.
    """
    result = read_result(folder)
    if result.get("status") != "finished":
        raise PlanError(f"{folder} has not finished; a run is sent to W&B once it has")
    from isotrain.pages.wandb_media import media, summary
    from isotrain.training.loggers.wandb_logger import build_wandb_logger  # loads torch

    name = f"{folder.parent.name}-{folder.name}-seed{result['seed']}"
    run = build_wandb_logger(project=project, group=None, save_dir=folder, name=name)
    with spinner("sending the run"):
        counts = {**result["n_parameters"], "n_rows": result["n_rows"]}
        run.log_hyperparams({**result["config"], **counts})
        records = read_records(folder / "metrics.jsonl")
        for record in records[run.experiment.starting_step :]:
            values = {k: v for k, v in record.items() if k not in ("step", "time_s")}
            run.log_metrics(few(values, result["headline"]), int(record["step"]))
        run.publish(summary(folder), media(folder))
    run.close(failed=False)
