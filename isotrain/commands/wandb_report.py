"""Upload a finished run to W&B after the fact."""

from pathlib import Path

from isotrain.console import spinner
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import few
from isotrain.runs.stored import PlanError


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

    config = result["config"]
    name = f"{folder.parent.name}-{folder.name}-seed{result['seed']}"
    labels = {"group": config.get("study"), "job_type": config.get("method")}
    run = build_wandb_logger(project=project, save_dir=folder, name=name, **labels)
    with spinner("sending the run"):
        counts = {**result["n_parameters"], "n_rows": result["n_rows"]}
        run.log_hyperparams({**config, **counts})
        records = read_records(folder / "metrics.jsonl")
        for record in records[run.experiment.starting_step :]:
            values = {k: v for k, v in record.items() if k not in ("step", "time_s")}
            run.log_metrics(few(values, result["headline"]), int(record["step"]))
        run.publish(summary(folder), media(folder))
    run.close(failed=False)
