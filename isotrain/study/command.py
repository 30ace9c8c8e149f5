"""`isotrain study run | report | status NAME`, and `isotrain study list`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from isotrain.config.redaction import redacted
from isotrain.pages.summary import say
from isotrain.study.definition import (
    StudyError,
    load_study,
    question_of,
    study_names,
    study_text,
)
from isotrain.study.identity import check_identity, write_identity
from isotrain.study.plan import plan_jobs, study_folder
from isotrain.study.report import write_report
from isotrain.study.runner import run_study
from isotrain.study.status import show_status

ACTIONS = {  # and what they take beside a study and overrides
    "run": ("jobs",),
    "report": (),
    "status": ("jobs", "watch"),
    "list": (),
}


def main(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain study ...`; 2 for a command that cannot run."""
    parser = argparse.ArgumentParser(
        prog="isotrain study",
        description="Run what is missing of a study (tasks × arms × seeds), tabulate what is "
        "finished, show how far it is, or list the studies there are.",
        epilog=f"studies: {', '.join(study_names())}, or the path of a yaml file of that form",
    )
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("study", nargs="?", help="name of a study, or path of a yaml file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--config-dir", metavar="DIR", help="more config groups, of yours")
    parser.add_argument("--name", help="of the study's folder, in place of the file's name")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time (1)")
    parser.add_argument("--watch", action="store_true", help="redraw the status until all is done")
    given = parser.parse_intermixed_args(arguments)
    if given.jobs is not None and "jobs" not in ACTIONS[given.action]:
        parser.error("--jobs is for run and status; a report starts nothing")
    if given.watch and "watch" not in ACTIONS[given.action]:
        parser.error("--watch is for status")
    if (given.study is None) != (given.action == "list"):
        parser.error("list takes no study" if given.study else "a study is required: its name")
    n_jobs = 1 if given.jobs is None else given.jobs
    try:
        if given.action == "list":
            return _list()
        if given.action == "run":
            return run_study(
                *(given.study, given.overrides, n_jobs),
                config_dir=given.config_dir,
                name=given.name,
            )
        if n_jobs < 1:
            raise StudyError(f"--jobs is the number of runs at a time, at least 1, got {n_jobs}")
        study = load_study(given.study, given.name)
        jobs = plan_jobs(study, given.overrides, given.config_dir)
        folder = study_folder(study, jobs)
        check_identity(study, jobs, folder)
        if given.action == "status":
            return show_status(study, jobs, folder, n_jobs, given.watch)
        write_report(study, jobs, given.overrides)
        write_identity(study, jobs, folder, given.study, given.overrides)
        return 0
    except StudyError as mistakes:
        text = str(redacted(str(mistakes)))
        print("isotrain: this cannot run", *text.splitlines(), sep="\n  ", file=sys.stderr)
        return 2


def _list() -> int:
    """Every study of the package: how many runs, and what it asks."""
    width = max(map(len, study_names()))
    for name in study_names():
        study = load_study(name)
        n_runs = len(study.tasks) * len(study.arms) * len(study.seeds)
        say(f"{name:<{width}}  {n_runs:>4} runs  {question_of(study_text(name))}")
    return 0
