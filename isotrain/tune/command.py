"""`isotrain tune run | report | status NAME`, and `isotrain tune list [NAME]`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from importlib.util import find_spec

from isotrain.config.sweep import text_of
from isotrain.console import install, reject, say, spinner
from isotrain.study.definition import StudyError, question_of
from isotrain.tune.definition import TuneError, load_search, search_names
from isotrain.tune.plan import plan_search
from isotrain.tune.preview import preview

ACTIONS = {  # and what they take beside a search and overrides
    "run": ("jobs", "trials"),
    "report": (),
    "status": ("jobs", "watch"),
    "list": ("trials",),
}


def main(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain tune ...`: 2 for a command that cannot run, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="isotrain tune",
        description="Search values of keys by the score on dev, tabulate the trials so far, show "
        "how far they are, list the searches there are, or show what one would try.",
        epilog=f"searches: {', '.join(search_names())}, or the path of a yaml file of that form",
    )
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("search", nargs="?", help="name of a search, or path of a yaml file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--config-dir", metavar="DIR", help="more config groups, of yours")
    parser.add_argument("--trials", type=int, metavar="N", help="trials in all (n_trials)")
    parser.add_argument("--jobs", type=int, metavar="N", help="trials at a time (1)")
    parser.add_argument("--name", metavar="NAME", help="of the search's folder (that of its file)")
    parser.add_argument(
        "--watch", action="store_true", default=None, help="redraw the status until all is done"
    )
    given = parser.parse_intermixed_args(arguments)
    for name in ("jobs", "trials", "watch"):
        if getattr(given, name) is not None and name not in ACTIONS[given.action]:
            takers = " and ".join(action for action, taken in ACTIONS.items() if name in taken)
            parser.error(f"--{name} is for {takers}")
    if given.search is None:
        if given.action != "list":
            parser.error("a search is required: its name")
        if (given.name, given.config_dir, given.trials) != (None, None, None):
            parser.error("--name, --config-dir and --trials are for one search: list NAME")
    n_jobs = 1 if given.jobs is None else given.jobs
    try:
        if given.search is None:
            return _list()
        if n_jobs < 1:
            raise TuneError(f"--jobs is the number of trials at a time, at least 1, got {n_jobs}")
        search = load_search(given.search, given.trials, given.name)
        if given.action == "list":
            question = question_of(text_of("tune", given.search))
            for line in preview(search, question, given.overrides):
                say(line)
        elif find_spec("optuna") is None:
            raise TuneError(f"isotrain tune needs the package optuna; {install('tune')}")
        with spinner("judging the ends of the space"):
            plan = plan_search(search, given.overrides, given.config_dir)
        if given.action == "list":  # and it can run
            return 0
        from isotrain.tune.report import write_report
        from isotrain.tune.runner import run_search
        from isotrain.tune.status import show_status
        from isotrain.tune.storage import opened

        if given.action == "run":
            return run_search(plan, n_jobs)
        with opened(plan, must_exist=True) as study:
            if given.action == "status":
                return show_status(plan, study, n_jobs, bool(given.watch))
            write_report(plan, study)
        return 0
    except (TuneError, StudyError, OSError) as mistakes:
        return reject(str(mistakes))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _list() -> int:
    """Every search of the package: how many trials, and what it asks."""
    width = max(map(len, search_names()))
    for name in search_names():
        search = load_search(name)
        question = question_of(text_of("tune", name))
        say(f"{name:<{width}}  {search.n_trials:>4} trials  {question}")
    return 0
