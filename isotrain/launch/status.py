"""`isotrain study status`: how far every run of a study is, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich import box
from rich.console import Group
from rich.table import Table

from isotrain.console import duration
from isotrain.jobs.locks import is_locked
from isotrain.launch.watch import at_step, first_of, numbers_at, show
from isotrain.study.definition import Study
from isotrain.study.plan import Job
from isotrain.study.progress import (
    ENDED,
    at_a_time,
    checkpoint_step,
    is_owned,
    newest_step,
    steps_of,
)
from isotrain.study.stored import stored

STATES = ("finished", "running", "interrupted", "failed", "waiting")


class State(NamedTuple):
    """How far one run is."""

    job: Job
    state: str  # one of STATES
    step: int | None = None  # the newest one, or that of the checkpoint it goes on from
    n_steps: int | None = None  # of the whole training, at most
    reason: str = ""  # of a failure, or which file is damaged or lacks something
    took_s: float | None = None  # a finished run that was never stopped, with start-up and page
    is_over: bool = False  # it failed in the call at work, which tries no run twice

    @property
    def is_left(self) -> bool:
        """Whether the call at work does it, or the next one."""
        return self.state != "finished" and not self.is_over

    @property
    def share_left(self) -> float:
        """Of the training of a run that is left, 1 where nothing is known."""
        if self.step is None or not self.n_steps:
            return 1.0
        return max(0.0, 1 - self.step / self.n_steps)


def show_status(
    study: Study, jobs: Sequence[Job], folder: Path, n_jobs: int | None, watch: bool
) -> int:
    """1 where a run has failed, otherwise 0; nothing is started and nothing is written.

    Args:
        study: whose runs.
        jobs: they, as planned.
        folder: the study's.
        n_jobs: runs at a time where no call is at work, which says how many it has; None = as many
            as the last call had, or 1.
        watch: the table is drawn anew until nothing is to come: what failed comes again only in
            another call than it failed in.
    """
    states: dict[str, State] = {}

    def look() -> tuple[Group, bool]:
        for job in jobs:
            if job.name not in states or states[job.name].state != "finished":
                states[job.name] = state_of(job, folder)
        lock = folder / "lock"
        is_at_work, known = is_locked(lock), at_a_time(lock)
        n_at_once = (known if is_at_work else n_jobs) or known or n_jobs or 1
        found = list(states.values())
        is_to_come = any(s.is_left and (is_at_work or s.state != "failed") for s in found)
        return status_table(study, found, n_at_once, is_at_work), not is_to_come

    show(look, watch)
    return int(any(state.state == "failed" for state in states.values()))


def state_of(job: Job, folder: Path) -> State:
    """How far a run is, by what its folder and the study's `folder` hold."""
    record, damage, lack = stored(job.folder)
    file = folder / "jobs" / f"{job.name}.json"
    log = folder / "logs" / f"{job.name}.log"  # locked from the first moment of a process on
    own = record.get("status") != "finished" and (is_owned(job.folder) or is_locked(log))
    if damage:
        return State(job, "running" if own else "waiting", reason=f"{damage}; it is done again")
    if not record:
        if own or not (code := _exit_code(log)):
            return State(job, "running" if own else "waiting")
        why = f"exit code {code}; logs/{job.name}.log tells why"
        return State(job, "failed", reason=why, is_over=_is_over(file, folder / "lock"))
    if record["status"] == "finished":
        took = _took_s(record, file, log)
        return State(job, "finished", reason=f"{lack}; no table has it" * bool(lack), took_s=took)
    of_all = steps_of(job.of_pair, record)
    if own:
        return State(job, "running", newest_step(job.folder / "metrics.jsonl"), of_all)
    step = checkpoint_step(job.folder)
    if record["status"] == "failed":
        reason = str(record.get("error") or "no reason is recorded").splitlines()[0]
        is_over = _is_over(file, folder / "lock")
        return State(job, "failed", step, of_all, reason, is_over=is_over)
    return State(job, "interrupted", step, of_all)


def seconds_left(states: Sequence[State], n_jobs: int) -> float | None:
    """By the mean of the finished runs of the same task, `n_jobs` at a time; None where unknown.

    A failed run counts, since the same command does it again; not while the call in which it failed
    is at work. Of a task without a finished run the mean over the other tasks is taken.
    """
    took = {
        task: [s.took_s for s in own if s.took_s is not None]
        for task, own in _by_task(states).items()
    }
    known = [seconds for own in took.values() for seconds in own]
    left = [s for s in states if s.is_left]
    if left and not known:
        return None
    work = [fmean(took[s.job.task] or known) * s.share_left for s in left]
    return max([*work, sum(work) / n_jobs], default=0.0)  # the longest has nobody to help it


def status_table(
    study: Study, states: Sequence[State], n_jobs: int, is_at_work: bool = True
) -> Group:
    """A row for each task and arm, the seeds in each state; reasons and the time left below.

    `n_jobs` runs are done at a time, as long as there are so many.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("task", "arm", *STATES):
        table.add_column(heading)
    for (task, arm), own in groupby(states, lambda s: (s.job.task, s.job.arm)):
        at: dict[str, dict[int, str]] = {name: {} for name in STATES}
        for s in own:
            at[s.state][s.job.seed] = at_step(s.step, s.n_steps, s.state == "running")
        table.add_row(task, arm, *map(numbers_at, at.values()))
    reasons = [f"{s.job.name}: {s.state}; {s.reason}" for s in states if s.reason]
    counts = {name: sum(s.state == name for s in states) for name in STATES}
    told = [f"{n} {name}" for name, n in counts.items() if n or name == "finished"]
    line = f"study {study.name}: {len(states)} runs, {', '.join(told)}"
    if n_left := sum(s.is_left for s in states):
        n_at_once = min(n_jobs, n_left)
        left = seconds_left(states, n_at_once)
        known = "time left unknown: none has finished" if left is None else ""
        line += f"; {known or f'about {duration(left or 0)} left'}, {n_at_once} at a time"
        if not is_at_work:
            is_begun = counts["waiting"] < len(states)
            line += "; no process is at it, and `isotrain study run` "
            line += "goes on" if is_begun else "starts it"
    return Group(table, *first_of(reasons), line)


def _by_task(states: Sequence[State]) -> dict[str, list[State]]:
    tasks = dict.fromkeys(s.job.task for s in states)
    return {task: [s for s in states if s.job.task == task] for task in tasks}


def _is_over(job_file: Path, lock: Path) -> bool:
    """Whether the call at work has started a run; it wrote to the lock when it began."""
    try:
        return is_locked(lock) and job_file.stat().st_mtime_ns >= lock.stat().st_mtime_ns
    except OSError:
        return False


def _took_s(record: Mapping[str, Any], job_file: Path, log: Path) -> float | None:
    """Seconds of a finished run; None if it was resumed, or where nothing tells.

    From its job file, written at the start of its process, to the last line of its log, written at
    the end: the run itself counts neither its imports nor its page. A run of another study has
    only what it counts.
    """
    if record.get("resumed_after_step") is not None:
        return None
    own = float((record.get("timings_s") or {}).get("total") or 0)
    try:
        return max(own, log.stat().st_mtime - job_file.stat().st_mtime)
    except OSError:
        return own or None


def _exit_code(log: Path) -> str:
    """Of a run that was refused before it had a record, by the last line of its log."""
    try:
        last = log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    except OSError:
        return ""
    return last.removeprefix(ENDED) if last.startswith(ENDED) else ""
