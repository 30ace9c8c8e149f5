"""`isotrain study run | report | status NAME`, and `isotrain study list [NAME]`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from contextlib import nullcontext

from isotrain.console import launched, reject, say
from isotrain.launch.preview import preview
from isotrain.launch.runner import owned_tables, run_study
from isotrain.launch.status import show_status
from isotrain.reporting.report import write_report
from isotrain.study.definition import (
    Study,
    StudyError,
    load_study,
    question_of,
    study_names,
    study_text,
)
from isotrain.study.identity import check_identity, write_identity
from isotrain.study.plan import Job, check_parts, plan_jobs, study_folder
from isotrain.study.stored import stored

ACTIONS = {  # and what they take beside a study and overrides
    "run": ("jobs",),
    "report": (),
    "status": ("jobs", "watch"),
    "list": (),
}


def main(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain study ...`: 2 for a command that cannot run, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="isotrain study",
        description="Run what is missing of a study (tasks × arms × seeds), tabulate what is "
        "finished, show how far it is, list the studies there are, or show what one would run.",
        epilog=f"studies: {', '.join(study_names())}, or the path of a yaml file of that form",
    )
    action = next((text for text in arguments if text in ACTIONS), None)

    def only_for(option: str, text: str) -> str:
        """The help of an option that not every action takes: none where this one does not."""
        takers = [name for name, taken in ACTIONS.items() if option in taken]
        if action is None:
            return f"{text}; for {' and '.join(takers)}"
        return text if action in takers else argparse.SUPPRESS

    parser.add_argument("action", choices=tuple(ACTIONS), help="--help behind it: what it takes")
    parser.add_argument("study", nargs="?", help="name of a study, or path of a yaml file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--config-dir", metavar="DIR", help="more config groups, of yours")
    parser.add_argument("--name", help="of the study's folder, in place of the file's name")
    at_once, until_done = "runs at a time (1)", "redraw the status until all is done"
    parser.add_argument("--jobs", type=int, metavar="N", help=only_for("jobs", at_once))
    parser.add_argument("--watch", action="store_true", help=only_for("watch", until_done))
    given = parser.parse_intermixed_args(arguments)
    if given.jobs is not None and "jobs" not in ACTIONS[given.action]:
        parser.error("--jobs is for run and status; a report starts nothing")
    if given.watch and "watch" not in ACTIONS[given.action]:
        parser.error("--watch is for status")
    if given.study is None:
        if given.action != "list":
            parser.error("a study is required: its name")
        if given.name is not None or given.config_dir is not None:
            parser.error("--name and --config-dir are for one study: list NAME")
    n_jobs = 1 if given.jobs is None else given.jobs
    try:
        if given.study is None:
            return _list()
        if n_jobs < 1:
            raise StudyError(f"--jobs is the number of runs at a time, at least 1, got {n_jobs}")
        if given.action == "run":
            if launched():
                raise StudyError(
                    "a study starts a process for each run, and this is a process of torchrun or "
                    "srun; start it once, without them (in a job of Slurm: --ntasks=1)"
                )
            return run_study(
                *(given.study, given.overrides, n_jobs),
                config_dir=given.config_dir,
                name=given.name,
            )
        study = load_study(given.study, given.name)
        if given.action == "list":
            for line in preview(study, question_of(study_text(given.study)), given.overrides):
                say(line)
        jobs = plan_jobs(study, given.overrides, given.config_dir)
        if given.action == "list":  # and it can run
            check_parts(jobs)
            return 0
        folder = study_folder(study, jobs)
        check_identity(study, jobs, folder, given.overrides)
        if given.action == "status":
            return show_status(study, jobs, folder, given.jobs, given.watch)
        _report(study, jobs, given.study, given.overrides)
        return 0
    except StudyError as mistakes:
        return reject(str(mistakes))
    except OSError as error:
        return reject(f"{error.filename or 'the storage'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _report(study: Study, jobs: Sequence[Job], file: str, overrides: Sequence[str]) -> None:
    """What is finished, tabulated; nothing is written where nothing is, which the report tells."""
    folder = study_folder(study, jobs)
    is_begun = any(stored(job.folder).is_finished for job in jobs)
    if is_begun:
        folder.mkdir(parents=True, exist_ok=True)
    with owned_tables(folder, study.name) if is_begun else nullcontext():
        if is_begun:
            # Again: another call may have been here first.
            check_identity(study, jobs, folder, overrides)
            write_identity(study, jobs, folder, file, overrides)
        write_report(study, jobs, overrides)


def _list() -> int:
    """Every study of the package: how many runs, and what it asks."""
    width = max(map(len, study_names()))
    for name in study_names():
        study = load_study(name)
        n_runs = len(study.tasks) * len(study.arms) * len(study.seeds)
        say(f"{name:<{width}}  {n_runs:>4} runs  {question_of(study_text(name))}")
    return 0
