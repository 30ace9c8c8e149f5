"""Write and print the tables and page of a study from the runs finished so far."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isotrain.config.compose import key_of
from isotrain.config.schema import NOT_CONTENT
from isotrain.console import drawing, say, spinner
from isotrain.results.frame import frame
from isotrain.results.latex import latex
from isotrain.results.markdown import first_tables, markdown
from isotrain.results.result import Result, find_result
from isotrain.results.run_frames import csv_text, runs_frame
from isotrain.results.runs import NOT_RUN
from isotrain.runs.files import read_result, replace_files
from isotrain.runs.stored import PlanError
from isotrain.studies.record import Plan

PAGE = "study.html"


def write_report(plan: Plan, figures: bool = False) -> list[Path]:
    """Regenerate the tables and page of a study or sweep in its folder; the files.

    Files: `table.md`, `table.csv`, `table.tex`, `runs.csv` and `study.html`, with
    `figures/` if asked. The tables are byte-identical for the same runs, whenever and in whatever
    order they finished. An earlier page is removed first, so that page and tables always match.

    Raises:
        PlanError: no run has finished; nothing is written then.
    """
    study = plan.study
    with spinner(f"reading and comparing the runs of {plan.name}"):
        result = find_result(plan)
    if not result.runs:
        reasons = "".join(f"\n{gap}" for gap in result.gaps if gap.why != NOT_RUN)
        raise PlanError(f"no run of {plan.kind} {plan.name} has finished{reasons}")
    cfg = read_result(result.runs[0].folder)["config"]
    result = result._replace(
        overrides=[
            text  # overrides that change results, unlike loggers or the data folder
            for text in in_force((f"threads={cfg['threads']}", *study.overrides, *plan.overrides))
            if not f"{key_of(text)}.".startswith((*(f"{n}." for n in NOT_CONTENT), "source.root."))
        ],
        command=_command(plan, cfg),
        question=study.question,
    )
    return write_result(result, plan.folder, figures)


def in_force(overrides: Iterable[str]) -> list[str]:
    """Effective overrides: each key once, with its last value.

    >>> in_force(["threads=1", "encoder=tiny", "threads=2"])
    ['threads=2', 'encoder=tiny']
    """
    return list({key_of(text): text for text in overrides}.values())


def write_result(result: Result, folder: Path, figures: bool = False) -> list[Path]:
    """Write and print the tables and page of a result into a folder; the files."""
    files = {
        "table.md": markdown(result).encode(),
        "table.csv": csv_text(frame(result.rows)).encode(),
        "table.tex": latex(result).encode(),
        "runs.csv": csv_text(runs_frame(result.runs)).encode(),
    }
    (folder / PAGE).unlink(missing_ok=True)
    paths = replace_files(folder, files)
    say(first_tables(files["table.md"].decode()))
    say(f"{folder}: {', '.join(files)}; runs.csv has every score")
    return [*paths, *_draw(result, folder, figures)]


def _draw(result: Result, folder: Path, figures: bool) -> list[Path]:
    with drawing(folder / PAGE, "the tables are"):
        from isotrain.pages.study_page import write_study_page

        page = write_study_page(folder, result, figures)
        say(page)
        return [page]
    return []


def _command(plan: Plan, config: Mapping[str, Any]) -> str:
    """The command that repeats the plan."""
    subcommand = ["run", plan.file] if plan.file else ["train", "-m"]
    dir_options = ["--config-dir", plan.config_dir] if plan.config_dir else []
    arguments = plan.overrides if plan.file else plan.arguments
    return shlex.join(["isotrain", *subcommand, *dir_options, *arguments])
