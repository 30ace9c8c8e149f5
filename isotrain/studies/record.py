"""`study.json`: what a call planned, where its runs are, and what was planned there before.

`status` and `report` read it and nothing else of the plan. It keeps every method that was ever
planned in the folder (for Holm's correction) and a history of the study's definitions, so that a
choice made after results were there shows.
"""

import os
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from isotrain.console import counted
from isotrain.runs.files import RECORD_FILE, read_json, write_json
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import PlanError, cannot_be_read
from isotrain.studies.call import Call, Job, alone
from isotrain.studies.definition import Model, Study

FILE, SEARCH_FILE = "study.json", "search.json"
STRICT = ConfigDict(extra="forbid", frozen=True)


class Definition(BaseModel):
    """What a history keeps of a study, and the runs that were on record when it came."""

    model_config = STRICT
    keys: dict[str, str]  # of the study's file, as texts; the order of their parts is none of it
    n_runs: int
    n_finished: int

    @property
    def when(self) -> str:
        """How many runs had finished when it came."""
        return f"{self.n_finished} of {self.n_runs} runs had finished"


class PlannedRun(BaseModel):
    """A run of the plan; its folder is relative to that of the plan."""

    model_config = STRICT
    task: str
    method: str
    seed: int
    folder: str
    definition: str


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
    earlier: tuple[PlannedRun, ...] = ()  # planned before, and not in `runs`

    @property
    def jobs(self) -> list[Job]:
        """Its runs, without overrides."""
        return [self.job(run) for run in self.runs]

    def job(self, run: PlannedRun) -> Job:
        """A run of the plan or an earlier one."""
        folder = Path(os.path.normpath(self.folder / run.folder))
        return Job(run.task, run.method, run.seed, folder, definition=run.definition)


def write_plan(call: Call, file: str, study: Study, jobs: Sequence[Job]) -> Plan:
    """Write the plan of a call into its folder, with what was planned there before.

    Raises:
        PlanError: an earlier `study.json` is damaged, or of another study.
    """
    folder = call.folder
    with alone(folder):
        before = read_plan(folder)
        if before is not None and call.kind == "study" and before.name != call.name:
            raise PlanError(
                f"{folder} has {before.kind} {before.name}; give study {call.name} another "
                "hydra.sweep.dir=..."
            )
        plan = _build_plan(call, file, study, jobs, before)
        write_json(folder / FILE, plan.model_dump(mode="json"))
    return plan


def _build_plan(
    call: Call, file: str, study: Study, jobs: Sequence[Job], before: Plan | None
) -> Plan:
    folder = call.folder
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
    folders = {run.folder for run in runs}
    past_runs = [*before.earlier, *before.runs] if before else []
    earlier = tuple(run for run in past_runs if run.folder not in folders)
    return plan.model_copy(update={"history": _history(before, plan), "earlier": earlier})


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
        reason = "; ".join(str(getattr(error, "reason", error)).splitlines()[:3])
        fix = "move it away, and give the command again"
        if file == FILE:
            fix += "; methods left out before then no longer count for Holm"
        raise PlanError(f"{path} is damaged ({reason}); {fix}") from error


def left_out(plan: Plan, task: str, shown: Container[str]) -> list[str]:
    """Compared methods of a task that finished earlier and are left out, or other ones, now.

    Args:
        plan: the present plan.
        task: name of the task.
        shown: its methods of which a run of the present plan has finished.
    """
    present = {(run.method, run.definition) for run in plan.runs if run.task == task}
    earlier_methods = dict.fromkeys(
        (run.method, run.definition)
        for run in plan.earlier
        if run.task == task and run.method != plan.study.baseline and plan.job(run).is_finished
    )
    return [
        f"{method} ({definition[:6]})"
        for method, definition in earlier_methods
        if not (method in shown and (method, definition) in present)
    ]


def changes(plan: Plan) -> list[str]:
    """A line for each change of the study since its first run started; empty without any.

    Each has the number of runs that had finished by then.
    """
    first = plan.history[0]
    lines = [f"{first.when} before the first call on record"] if first.n_finished else []
    for previous, entry in pairwise(plan.history):
        for key, value in entry.keys.items():
            if (old := previous.keys[key]) != value:
                lines.append(f"{key} was {old}, and became {value} when {entry.when}")
    present = {(run.task, run.method, run.definition) for run in plan.runs}
    run_counts = Counter(
        run.method
        for run in plan.earlier
        if run.method in plan.study.methods
        and (run.task, run.method, run.definition) not in present
        and plan.job(run).is_finished
    )
    if run_counts:
        names, n = ", ".join(run_counts), counted(run_counts.total(), "run")
        lines.append(f"methods defined otherwise before: {names} ({n} finished)")
    return lines


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
        texts = [str(name) for _, name in group]
        parts += [f"{texts[0]}–{texts[-1]}"] if len(texts) > 2 else texts
    return ", ".join(parts)


def _history(before: Plan | None, plan: Plan) -> tuple[Definition, ...]:
    """The definitions so far, and the present one where it is another.

    Definitions of which no run ever started are forgotten.
    """
    study, fields = plan.study, ("tasks", "methods", "seeds")
    margin: float | str | None = study.margin
    if study.margin_share is not None:
        margin = f"{study.margin_share:g} of baseline − untrained"
    jobs = [before.job(run) for run in (*before.runs, *before.earlier)] if before else []
    past = before.history if before else ()
    if not any((job.folder / RECORD_FILE).exists() for job in jobs):
        past, jobs = (), plan.jobs
    entry = Definition(
        keys={
            "margin": "not stated" if margin is None else str(margin),
            "baseline": study.baseline,
            **{field: listed(sorted(getattr(study, field))) for field in fields},
        },
        n_runs=len(jobs),
        n_finished=sum(job.is_finished for job in jobs),
    )
    return past if past and past[-1].keys == entry.keys else (*past, entry)
