"""`study.json`: what a call planned, where its runs are, and what was planned there before.

`status` and `report` read it and nothing else of the plan. It keeps every method that was ever
planned in the folder (for Holm's correction) and a history of the study's definitions, so that a
choice made after results were there shows.
"""

import os
from collections.abc import Container, Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from isotrain.config.compose import RunId
from isotrain.console import counted
from isotrain.runs.files import RECORD_FILE, read_json, write_json
from isotrain.runs.locks import taken_within
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import PlanError, cannot_be_read, stored
from isotrain.studies.call import Call, Job, make_folder
from isotrain.studies.definition import Model, Study

FILE, SEARCH_FILE = "study.json", "search.json"
PATIENCE_S = 60.0  # for another call that writes its plan
KINDS = ("tasks", "methods", "seeds")
STRICT = ConfigDict(extra="forbid", frozen=True)


class Definition(BaseModel):
    """What a history keeps of a study, and the runs that were on record when it came."""

    model_config = STRICT
    margin: float | str | None
    baseline: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    n_runs: int
    n_finished: int

    def is_as(self, other: "Definition") -> bool:
        """Whether it is the same definition; the order of its parts is none of it."""
        same = all(set(getattr(self, kind)) == set(getattr(other, kind)) for kind in KINDS)
        return same and (self.margin, self.baseline) == (other.margin, other.baseline)


class PlannedRun(BaseModel):
    """A run of the plan; its folder is relative to that of the plan."""

    model_config = STRICT
    task: str
    method: str
    seed: int
    folder: str
    definition: str


class Earlier(BaseModel):
    """Runs of a method that are left out now, or are all of another definition."""

    model_config = STRICT
    task: str
    method: str
    definition: str
    folders: tuple[str, ...]


class Plan(BaseModel):
    """Content of a `study.json`."""

    model_config = STRICT
    folder: Path = Field(exclude=True)
    kind: str  # study | sweep
    name: str
    file: str  # that the study was read from; "" for a sweep
    overrides: tuple[str, ...]  # of the command line, for every run
    arguments: tuple[str, ...]  # the command line of a sweep
    config_dir: str | None
    study: Study
    runs: tuple[PlannedRun, ...]
    history: tuple[Definition, ...] = ()  # the present definition last
    earlier: tuple[Earlier, ...] = ()

    @property
    def jobs(self) -> list[Job]:
        """Its runs, without overrides."""
        return [
            Job(
                *(run.task, run.method, run.seed, ()),
                _absolute(self.folder, run.folder),
                RunId(run.task, run.method, "", ""),
                definition=run.definition,
            )
            for run in self.runs
        ]


def write_plan(call: Call, file: str, study: Study, jobs: Sequence[Job]) -> Plan:
    """Write the plan of a call into its folder, with what was planned there before.

    Raises:
        PlanError: an earlier `study.json` is damaged, or the folder cannot be written to.
    """
    folder = call.folder
    make_folder(folder)
    try:
        lock = taken_within(folder / "lock", PATIENCE_S)
    except OSError as error:
        raise PlanError(f"cannot write to {folder} ({error.strerror or error})") from error
    if lock is None:
        raise PlanError(f"{folder / 'lock'} is held by another call; give the command again")
    try:
        return _written(call, file, study, jobs)
    finally:
        os.close(lock)


def _written(call: Call, file: str, study: Study, jobs: Sequence[Job]) -> Plan:
    folder, before = call.folder, read_plan(call.folder)
    if before is not None and call.kind == "study" and before.name != call.name:
        raise PlanError(
            f"{folder} has {before.kind} {before.name}; give study {call.name} another "
            "hydra.sweep.dir=..."
        )
    runs = tuple(
        PlannedRun(
            task=job.task,
            method=job.method,
            seed=job.seed,
            folder=os.path.relpath(job.folder.absolute(), folder.absolute()),
            definition=job.definition,
        )
        for job in jobs
    )
    plan = Plan(
        folder=folder,
        kind=call.kind,
        name=call.name,
        file=file,
        overrides=tuple(redacted(call.overrides)),
        arguments=tuple(redacted(call.arguments)),
        config_dir=call.config_dir,
        study=study,
        runs=runs,
    )
    own = {"history": _history(before, plan), "earlier": _earlier(before, plan)}
    plan = plan.model_copy(update=own)
    try:
        write_json(folder / FILE, plan.model_dump(mode="json"))
    except OSError as error:
        raise PlanError(f"cannot write to {folder} ({error.strerror or error})") from error
    return plan


def read_plan(folder: Path) -> Plan | None:
    """The plan of a folder; None without one.

    Raises:
        PlanError: it is damaged, or cannot be read now.
    """
    return read_record(Plan, folder, FILE)


def read_record(model: type[Model], folder: Path, file: str) -> Model | None:
    """The record of a study or search in its folder; None without one.

    Raises:
        PlanError: it is damaged, or cannot be read now.
    """
    path = folder / file
    try:
        return model.model_validate(read_json(path) | {"folder": folder})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except (ValueError, TypeError) as error:
        why = "; ".join(str(getattr(error, "reason", error)).splitlines()[:3])
        raise PlanError(
            f"{path} is damaged ({why}); move it away, and give the command again"
        ) from error


def left_out(plan: Plan, task: str, shown: Container[str]) -> list[str]:
    """Methods of a task that finished earlier and are left out, or defined otherwise, now.

    Args:
        plan: the present plan.
        task: name of the task.
        shown: its methods of which a run of the present plan has finished.
    """
    now = {(run.method, run.definition) for run in plan.runs if run.task == task}
    return [
        f"{one.method} ({one.definition[:6]})"
        for one in plan.earlier
        if one.task == task
        and not (one.method in shown and (one.method, one.definition) in now)
        and _n_finished(plan.folder, one)
    ]


def changes(plan: Plan) -> list[str]:
    """A line for each change of the study since its first run started; empty without any.

    Margins before, tasks, methods and seeds that were added, with the number of runs that had
    finished by then, and those that are left out or defined otherwise now.
    """
    first, now = plan.history[0], plan.history[-1]
    lines, start = [], "when the first run started"
    if first.n_finished:
        start = "at the first call on record"
        lines.append(f"{_when(first)} before the first call on record")
    for key in ("margin", "baseline"):
        values = [(getattr(entry, key), entry) for entry in plan.history]
        if new := [one for before, one in pairwise(values) if one[0] != before[0]]:
            became = ", then ".join(f"became {_value(x)} when {_when(entry)}" for x, entry in new)
            lines.append(f"{key} was {_value(values[0][0])} {start}, and {became}")
    for kind in KINDS:
        seen = list(getattr(first, kind))
        for entry in plan.history[1:]:
            added = [name for name in getattr(entry, kind) if name not in seen]
            if stay := [name for name in added if name in getattr(now, kind)]:
                text = f"{kind} {listed(stay)} were added to {listed(seen)}"
                lines.append(f"{text} when {_when(entry)}")
            seen += added
        if out := [name for name in seen if name not in getattr(now, kind)]:
            lines.append(f"{kind} planned earlier and left out now: {listed(out)}")
    same = {(run.task, run.method, run.definition) for run in plan.runs}
    other = {
        one: n
        for one in plan.earlier
        if one.method in plan.study.methods
        and (one.task, one.method, one.definition) not in same
        and (n := _n_finished(plan.folder, one))
    }
    if other:
        names, n = listed(dict.fromkeys(one.method for one in other)), sum(other.values())
        lines.append(f"methods defined otherwise before: {names} ({counted(n, 'run')} finished)")
    return lines


def is_finished(job: Job) -> bool:
    """Whether its run is on record as finished."""
    return stored(job.folder).is_finished


def listed(names: Iterable[Any]) -> str:
    """Names in their order; three and more numbers in a row as a range.

    >>> listed(["none", "mean"]), listed([0, 1, 2, 5, 7, 8])
    ('none, mean', '0–2, 5, 7, 8')
    """
    parts: list[str] = []
    for _, group in groupby(
        enumerate(names),  # numbers that follow one another differ as their places do
        lambda pair: pair[1] - pair[0] if isinstance(pair[1], int) else pair,
    ):
        own = [str(name) for _, name in group]
        parts += [f"{own[0]}–{own[-1]}"] if len(own) > 2 else own
    return ", ".join(parts)


def _history(before: Plan | None, plan: Plan) -> tuple[Definition, ...]:
    """The definitions so far, and the present one where it is another.

    Definitions of which no run ever started are forgotten.
    """
    study, share = plan.study, plan.study.margin_share
    past: tuple[Definition, ...] = ()
    known = plan.jobs
    if before is not None and _has_started(before):
        past, known = before.history, before.jobs
    entry = Definition(
        margin=study.margin if share is None else f"{share:g} of baseline − untrained",
        baseline=study.baseline,
        tasks=tuple(study.tasks),
        methods=tuple(study.methods),
        seeds=study.seeds,
        n_runs=len(known),
        n_finished=sum(map(is_finished, known)),
    )
    return past if past and past[-1].is_as(entry) else (*past, entry)


def _has_started(plan: Plan) -> bool:
    """Whether any run that was ever planned in a folder left a record."""
    names = [run.folder for run in plan.runs] + [
        name for one in plan.earlier for name in one.folders
    ]
    return any((_absolute(plan.folder, name) / RECORD_FILE).exists() for name in names)


def _earlier(before: Plan | None, plan: Plan) -> tuple[Earlier, ...]:
    """What was planned before and is not in the plan, by task, method and definition."""
    now = {run.folder for run in plan.runs}
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in before.earlier if before else ():
        found[one.task, one.method, one.definition] = dict.fromkeys(one.folders)
    for run in before.runs if before else ():
        found.setdefault((run.task, run.method, run.definition), {})[run.folder] = None
    return tuple(
        Earlier(task=key[0], method=key[1], definition=key[2], folders=tuple(own))
        for key, folders in found.items()
        if (own := [name for name in folders if name not in now])
    )


def _n_finished(folder: Path, one: Earlier) -> int:
    return sum(stored(_absolute(folder, name)).is_finished for name in one.folders)


def _absolute(folder: Path, run: str) -> Path:
    return Path(os.path.normpath(folder / run))


def _when(known: Definition) -> str:
    return f"{known.n_finished} of {known.n_runs} runs had finished"


def _value(value: float | str | None) -> str:
    if value is None:
        return "not stated"
    return value if isinstance(value, str) else f"{value:g}"
