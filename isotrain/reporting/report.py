"""Write and print the tables and page of a study from the runs finished so far."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from isotrain.config.compose import key_of, plain
from isotrain.config.schema import NOT_CONTENT
from isotrain.config.sweep import plan_name
from isotrain.config.targets import allowance
from isotrain.console import drawing, say, spinner
from isotrain.jobs.archive import Job
from isotrain.jobs.stored import STUDY, PlanError, read_origin
from isotrain.reporting.frame import frame
from isotrain.reporting.latex import latex
from isotrain.reporting.markdown import markdown
from isotrain.reporting.result import Result, find_result
from isotrain.reporting.run_frames import csv_text, parquet_bytes, runs_frame, scores_frame
from isotrain.reporting.wandb_report import send, wandb_options
from isotrain.runs.files import replace_bytes
from isotrain.runs.secrets import redacted
from isotrain.studies.definition import Study, question_of, study_text
from isotrain.studies.plan import SHARED, in_force
from isotrain.studies.results import NOT_RUN

PAGE = "study.html"


def write_report(
    study: Study, jobs: Sequence[Job], folder: Path, overrides: Sequence[str]
) -> list[Path]:
    """Regenerate the tables and page of a study in its folder; the files. No run is started.

    `overrides` are the command-line overrides used to plan `jobs`. Files: `table.md`, `table.csv`,
    `table.tex`, `runs.csv`, `runs.parquet` and, with `figures/`, `study.html`. The tables are
    byte-identical for the same runs, whenever and in whatever order they finished. An earlier page
    is removed first, so that page and tables always match.

    Raises:
        PlanError: no run has finished; nothing is written then.
    """
    with spinner(f"reading and comparing the runs of {study.name}"):
        result = find_result(study, jobs, folder)
    if not result.runs:
        told = "".join(f"\n{gap}" for gap in result.gaps if gap.why != NOT_RUN)
        raise PlanError(f"no run of study {study.name} has finished beside {folder}{told}")
    recorded = read_origin(folder / STUDY) or {"file": study.name}
    result = result._replace(
        overrides=[
            text  # overrides that change results, unlike loggers or the data folder
            for text in in_force((*SHARED, *study.overrides, *overrides))
            if not f"{key_of(text)}.".startswith((*(f"{n}." for n in NOT_CONTENT), "source.root."))
        ],
        command=_command(study, jobs, recorded, overrides),
        question=_question(str(recorded["file"])),
    )
    written = write_result(result, folder)
    if options := wandb_options(jobs):
        tables = {"table": frame(result.rows), "runs": runs_frame(result.runs)}
        send(folder, study.name, options, tables)
    return written


def write_result(result: Result, folder: Path) -> list[Path]:
    """Write and print the tables and page of a result into a folder; the files."""
    files = {
        "table.md": markdown(result).encode(),
        "table.csv": csv_text(frame(result.rows)).encode(),
        "table.tex": latex(result).encode(),
        "runs.csv": csv_text(runs_frame(result.runs)).encode(),
        "runs.parquet": parquet_bytes(scores_frame(result.runs)),
    }
    (folder / PAGE).unlink(missing_ok=True)
    written = replace_files(folder, files)
    say(files["table.md"].decode())
    say(f"{folder}: {', '.join(files)}")
    return [*written, *_draw(result, folder)]


def replace_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files atomically, so that no half table is read; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        replace_bytes(folder / name, content)
    return [folder / name for name in files]


def _draw(result: Result, folder: Path) -> list[Path]:
    with drawing(folder / PAGE, "the tables are"):
        from isotrain.pages.study_page import write_study_page  # matplotlib is slow to import

        page = write_study_page(folder, result)
        say(page)
        return [page]
    return []


def _command(
    study: Study, jobs: Sequence[Job], recorded: Mapping[str, Any], overrides: Sequence[str]
) -> str:
    """The command that repeats the study."""
    file, own = str(recorded["file"]), recorded.get("config_dir")
    named = [] if study.name in (file, plan_name(file)) else ["--name", study.name]
    named += ["--config-dir", str(own)] if own else []
    pairs = {(job.task, job.method): job.of_pair for job in jobs}
    configs = {f"{task}/{method}": plain(cfg) for (task, method), cfg in pairs.items()}
    words = [*allowance(configs), "isotrain", "run", file, *named, *redacted(overrides)]
    return shlex.join(words)


def _question(file: str) -> str:
    with suppress(PlanError, OSError):  # the file may have been deleted
        return question_of(study_text(file))
    return ""
