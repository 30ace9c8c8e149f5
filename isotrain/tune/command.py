"""`isotrain tune run NAME` and `isotrain tune report NAME`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from isotrain.config.redaction import redacted
from isotrain.progress import working
from isotrain.tune.definition import TuneError, load_search, search_names
from isotrain.tune.plan import plan_search


def main(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain tune ...`; 2 for a command that cannot run."""
    parser = argparse.ArgumentParser(
        prog="isotrain tune",
        description="Search values of keys by the score on dev, or tabulate the trials so far.",
        epilog=f"searches: {', '.join(search_names())}, or the path of a yaml file of that form",
    )
    parser.add_argument("action", choices=("run", "report"))
    parser.add_argument("search", help="name of a search, or path of a yaml file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--config-dir", metavar="DIR", help="more config groups, of yours")
    parser.add_argument("--trials", type=int, metavar="N", help="trials in all (n_trials)")
    parser.add_argument("--jobs", type=int, metavar="N", help="trials at a time (1)")
    parser.add_argument("--name", metavar="NAME", help="of the search's folder (that of its file)")
    given = parser.parse_intermixed_args(arguments)
    for name in ("jobs", "trials"):
        if given.action == "report" and getattr(given, name) is not None:
            parser.error(f"--{name} is for run; a report starts nothing, and has every trial")
    try:
        search = load_search(given.search, given.trials, given.name)
        if find_spec("optuna") is None:
            raise TuneError("isotrain tune needs the package optuna; pip install 'isotrain[tune]'")
        with working("judging the ends of the space"):
            plan = plan_search(search, given.overrides, given.config_dir)
        from isotrain.tune.report import write_report
        from isotrain.tune.runner import run_search
        from isotrain.tune.storage import opened

        if given.action == "run":
            return run_search(plan, 1 if given.jobs is None else given.jobs)
        with opened(plan, must_exist=True) as study:
            write_report(plan, study)
        return 0
    except (TuneError, OSError) as mistakes:
        text = str(redacted(str(mistakes)))
        print("isotrain: this cannot run", *text.splitlines(), sep="\n  ", file=sys.stderr)
        return 2
