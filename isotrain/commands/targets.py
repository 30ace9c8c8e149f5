"""Resolve what a command line names: a study, search, sweep, run, or a plain folder.

A name is that of a file in `conf/study` or `conf/tune`; a path is such a file of yours, a job file
or `result.json` (which are run again), or a folder that one of these has left.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from isotrain.config.compose import key_of
from isotrain.config.foreign import plan_mistakes, reference_mistakes
from isotrain.config.sweep import names, read
from isotrain.console import install
from isotrain.jobs.archive import Job
from isotrain.jobs.progress import is_owned
from isotrain.jobs.stored import COPY, SEARCH, STUDY, SWEEP, PlanError, read_origin
from isotrain.studies.definition import Study, load_study
from isotrain.studies.identity import differences, of_earlier_keys
from isotrain.studies.plan import plan_jobs, study_folder
from isotrain.studies.search import Search, load_search
from isotrain.studies.search_plan import Plan, find_search, plan_search
from isotrain.studies.sweep import plan_sweep

DATA_DIR = "ISOTRAIN_DATA_DIR"
YAML = (".yaml", ".yml")
OPTIONS = {  # of `Named`, as they are given
    **{"overrides": "key=value", "config_dir": "--config-dir"},
    **{"name": "--name", "trials": "--trials"},
}


class Named(NamedTuple):
    """A target named on the command line, and changes to its plan."""

    target: str  # a name, file or folder
    overrides: Sequence[str] = ()
    config_dir: str | None = None
    name: str | None = None
    trials: int | None = None
    file: str = ""  # that a folder's plan was given by; `target` may be its copy there


class Given(NamedTuple):
    """The resolved target of a command."""

    kind: str  # study | search | sweep | run | folder
    folder: Path  # of a plan or run
    named: Named
    study: Study | None = None
    jobs: Sequence[Job] = ()
    search: Plan | None = None
    is_other: bool = False  # a study that computes something else than its folder has on record


def origin(named: Named, to_read: bool = False) -> tuple[str, Named, Path | None]:
    """Kind of a target, the command that creates it, and its folder if given."""
    path = Path(named.target)
    if not path.is_dir():
        if path.is_file() and path.suffix not in YAML:
            raise PlanError(f"{path} is a file; give the folder of a run, or the yaml of a study")
        if (kind := kind_of(named.target)) == "study":
            _reject(named, "study", "trials")
        return kind, named, None
    path = path.resolve()  # its name and what is above it, also of "." and of "a/../b"
    for kind, name in (("study", STUDY), ("search", SEARCH), ("sweep", SWEEP)):
        if (content := read_origin(path / name)) is not None:
            _reject(named, f"{kind}'s folder", "name", *["trials"] * (kind != "search"))
            free = {*map(key_of, named.overrides)} | (set() if to_read else {"output_dir"})
            recorded = [text for text in content["overrides"] if key_of(text) not in free]
            check = reference_mistakes if to_read else plan_mistakes  # reading writes no run
            if mistakes := check({"overrides": recorded}):
                raise PlanError("\n".join(mistakes))
            named = named._replace(
                overrides=[*content["overrides"], *named.overrides],
                config_dir=named.config_dir or content["config_dir"],
            )
            if kind == "sweep":
                return kind, named, path
            file, copy = content["file"], path / COPY
            is_there = Path(file).suffix not in YAML or Path(file).is_file()
            is_copy = copy.is_file() and (not is_there or (to_read and kind == "search"))
            own = {"name": content["name"], "trials": named.trials or content.get("n_trials")}
            own |= {"target": str(copy) if is_copy else file, "file": file}
            return kind, named._replace(**own), path
    kind = "run" if (path / "result.json").is_file() or is_owned(path) else "folder"
    _reject(named, kind, *OPTIONS)
    return kind, named, path


def resolve(named: Named, to_write: bool = False) -> Given:
    """Resolve a target for reading; its parts and data are not needed.

    Raises:
        PlanError: with `to_write`, a study other than the one that its folder belongs to.
    """
    os.environ.setdefault(DATA_DIR, "")  # it is referred to, and no data are read here
    kind, named, folder = origin(named, to_read=True)
    if kind == "search":
        own = named.overrides, named.config_dir, named.file or named.target
        plan = find_search(_search(named), *own, folder)
        return Given(kind, plan.folder, named, search=plan)
    if kind == "study":
        study = load_study(named.target, named.name)
        jobs: Sequence[Job] = plan_jobs(study, named.overrides, named.config_dir)
        folder = folder or study_folder(study, jobs)
        difference = "\n".join(differences(study, jobs, folder, named.overrides))
        jobs, told = of_earlier_keys(jobs, folder, named.overrides)
        if to_write and difference and not told:
            raise PlanError(difference)
        if told or difference:
            print(told or difference, file=sys.stderr)
        return Given(kind, folder, named, study, jobs, is_other=bool(difference))
    assert folder is not None
    jobs = plan_sweep(named.overrides, named.config_dir) if kind == "sweep" else ()
    return Given(kind, folder, named, jobs=jobs)


def planned_search(named: Named) -> Plan:
    """Plan a search to run."""
    return plan_search(_search(named), named.overrides, named.config_dir, named.target)


def kind_of(name_or_path: str) -> str:
    """Whether a file defines a study or a search.

    >>> kind_of("smoke"), kind_of("smoke_search")
    ('study', 'search')
    """
    if Path(name_or_path).suffix not in YAML:
        return "search" if name_or_path in names("tune") else "study"
    try:
        content = read("study", name_or_path)
    except ValueError as error:
        raise PlanError(str(error)) from error
    return "search" if isinstance(content, dict) and "space" in content else "study"


def _search(named: Named) -> Search:
    search = load_search(named.target, named.trials, named.name)
    if find_spec("optuna") is None:
        raise PlanError(f"a search needs the package optuna; {install('tune')}")
    return search


def _reject(named: Named, what: str, *options: str) -> None:
    """Reject options that this kind of target does not take, by the fields of `Named`."""
    values = named._asdict()
    if given := [OPTIONS[name] for name in options if values[name]]:
        raise PlanError(f"{named.target} is a {what}, which takes no {', '.join(given)}")
