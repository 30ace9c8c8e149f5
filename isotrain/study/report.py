"""Tables of what a study's runs have left so far, written beside them and printed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from isotrain.config.schema import NOT_CONTENT
from isotrain.pages.summary import say
from isotrain.study.definition import Study, StudyError, load_study
from isotrain.study.plan import SHARED, Job, plan_jobs, study_folder
from isotrain.study.results import collect
from isotrain.study.table import collapsed, markdown, runs_csv, table_csv, table_rows


def report_study(
    name_or_path: str, overrides: Sequence[str] = (), config_dir: str | None = None
) -> Path:
    """The folder with `table.md`, `table.csv` and `runs.csv`, made anew; no run is started.

    `overrides` are those that `run_study` was given: they say which runs belong to the study.

    Raises:
        StudyError: as `plan_jobs`; or no run has finished; nothing is written then.
    """
    study = load_study(name_or_path)
    return write_report(study, plan_jobs(study, overrides, config_dir), overrides)


def write_report(study: Study, jobs: Sequence[Job], overrides: Sequence[str]) -> Path:
    """As `report_study`, for planned runs."""
    runs, missing = collect(jobs)
    folder = study_folder(study, jobs)
    if not runs:
        raise StudyError(f"no run of study {study.name} has finished under {folder.parents[1]}")
    rows = table_rows(study, runs)
    shared = [text for text in (*SHARED, *study.overrides, *overrides) if _counts(text)]
    texts = {
        "table.md": markdown(study, rows, missing, (len(runs), len(jobs)), shared, collapsed(runs)),
        "table.csv": table_csv(study, rows),
        "runs.csv": runs_csv(runs),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, folder / name)  # at once: nobody reads half a table
    say(texts["table.md"])
    say(f"{folder}: {', '.join(texts)}")
    return folder


def _counts(override: str) -> bool:
    """Whether an override belongs to what is computed; places and loggers do not."""
    key = override.lstrip("+~").partition("=")[0]
    return not any(key == name or key.startswith(f"{name}.") for name in NOT_CONTENT)
