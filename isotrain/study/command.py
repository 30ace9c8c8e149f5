"""`isotrain study run NAME` and `isotrain study report NAME`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from isotrain.config.redaction import redacted
from isotrain.study.definition import StudyError, study_names
from isotrain.study.report import report_study
from isotrain.study.runner import run_study


def main(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain study ...`; 2 for a command that cannot run."""
    parser = argparse.ArgumentParser(
        prog="isotrain study",
        description="Run what is missing of a study (tasks × arms × seeds), or tabulate it.",
        epilog=f"studies: {', '.join(study_names())}, or the path of a yaml file of that form",
    )
    parser.add_argument("action", choices=("run", "report"))
    parser.add_argument("study", help="name of a study, or path of a yaml file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--config-dir", metavar="DIR", help="more config groups, of yours")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time (1)")
    given = parser.parse_intermixed_args(arguments)
    if given.action == "report" and given.jobs is not None:
        parser.error("--jobs is for run; a report starts nothing")
    try:
        if given.action == "run":
            n_jobs = 1 if given.jobs is None else given.jobs
            return run_study(given.study, given.overrides, n_jobs, config_dir=given.config_dir)
        report_study(given.study, given.overrides, given.config_dir)
        return 0
    except StudyError as mistakes:
        text = str(redacted(str(mistakes)))
        print("isotrain: this cannot run", *text.splitlines(), sep="\n  ", file=sys.stderr)
        return 2
