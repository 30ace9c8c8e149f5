"""Progress and remaining time of a study or sweep; nothing is started."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich import box
from rich.console import Group
from rich.live import Live
from rich.table import Table

from isotrain.console import counted, duration, is_watched, say
from isotrain.jobs.archive import Job
from isotrain.jobs.pool import ENDED, call_at_work, seconds_left
from isotrain.jobs.progress import checkpoint_step, is_owned, newest_step, steps_of
from isotrain.jobs.stored import stored
from isotrain.runs.locks import is_locked
from isotrain.studies.identity import listed
from isotrain.studies.results import lack_of

STATES = ("finished", "running", "interrupted", "failed", "waiting")
REDRAW_S = 3.0  # refresh interval of --watch
MOST_REASONS = 20  # of failures, listed below the table


class Status(NamedTuple):
    """Output of `isotrain status`."""

    drawn: Group
    content: dict[str, Any]  # for --json
    has_ended: bool  # no process is running it
    has_failed: bool


class State(NamedTuple):
    """Progress of one run."""

    job: Job
    state: str  # one of STATES
    step: int | None = None  # the latest one, or that of the checkpoint it resumes from
    n_steps: int | None = None  # at most, of the whole training
    reason: str = ""  # of a failure, or which file is damaged or incomplete
    took_s: float | None = None  # of an uninterrupted finished run, with start-up and page
    is_over: bool = False  # finished, or failed in the running call, which does not retry

    @property
    def share_left(self) -> float:
        """Remaining share of training, 1 if unknown."""
        if self.state == "finished":
            return 0.0
        return max(0.0, 1 - (self.step or 0) / self.n_steps) if self.n_steps else 1.0


def show(look: Callable[[], Status], watch: bool, as_json: bool) -> int:
    """Print the result of `look`; exit code 1 if a run has failed.

    With `watch` it is refreshed until nothing runs; on a terminal only.
    """
    status = look()
    if as_json:
        print(json.dumps(status.content, indent=2))
        return int(status.has_failed)
    if watch and not is_watched():
        say("--watch redraws on a terminal, and this is none: the status once")
    elif watch:
        with Live(status.drawn, transient=True) as live:
            while not status.has_ended:
                time.sleep(REDRAW_S)
                status = look()
                live.update(status.drawn, refresh=True)
    for part in status.drawn.renderables:
        say(part)
    return int(status.has_failed)


def status_of(
    what: str,
    headings: Sequence[str],
    jobs: Sequence[Job],
    folder: Path,
    n_jobs: int | None,
    damaged: Sequence[str] = (),
) -> Status:
    """The status of a plan in its folder.

    Args:
        what: such as "study smoke".
        headings: task and method of a study, whose runs are numbered by seed; empty for a sweep.
        jobs: its runs.
        folder: of the plan.
        n_jobs: runs at a time if no call is running; None = 1.
        damaged: records that cannot be assigned to a run.
    """
    states = [state_of(job, folder) for job in jobs]
    call = call_at_work(folder)
    n_at_once = call.n if call else n_jobs or 1
    return status_table(what, headings, states, n_at_once, bool(call), damaged)


def state_of(job: Job, folder: Path) -> State:
    """Progress of a run, from its folder and the plan's `folder`."""
    record, damage, is_changed = stored(job.folder)
    log = folder / "logs" / f"{job.name}.log"  # locked as soon as a process starts
    own = record.get("status") != "finished" and (is_owned(job.folder) or is_locked(log))
    if damage:
        if is_changed:
            return State(job, "failed", reason=damage)
        return State(job, "running" if own else "waiting", reason=f"{damage}; it is done again")
    if not record:
        if own or not (code := _exit_code(log)):
            return State(job, "running" if own else "waiting")
        why = f"exit code {code}; logs/{job.name}.log tells why"
        return State(job, "failed", reason=why, is_over=_failed_in_call(log, folder / "lock"))
    if record["status"] == "finished":
        lack = lack_of(record, job.folder)
        took = _took_s(record, folder / "jobs" / f"{job.name}.json", log)
        reason = f"{lack}; no table has it" * bool(lack)
        return State(job, "finished", reason=reason, took_s=took, is_over=True)
    of_all = steps_of(job.of_pair, record)
    if own:
        return State(job, "running", newest_step(job.folder / "metrics.jsonl"), of_all)
    step = checkpoint_step(job.folder)
    if record["status"] == "failed":
        reason = str(record.get("error") or "no reason is recorded").splitlines()[0]
        is_over = _failed_in_call(log, folder / "lock")
        return State(job, "failed", step, of_all, reason, is_over=is_over)
    return State(job, "interrupted", step, of_all)


def status_table(
    what: str,
    headings: Sequence[str],
    states: Sequence[State],
    n_jobs: int,
    is_at_work: bool = True,
    damaged: Sequence[str] = (),
) -> Status:
    """One row per task and method with the seeds in each state; reasons and time left below.

    Up to `n_jobs` runs at a time.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in (*headings, *STATES):
        table.add_column(heading)
    numbered = enumerate(states)
    for row, group in groupby(numbered, lambda one: [getattr(one[1].job, h) for h in headings]):
        at: dict[str, dict[int, str]] = {name: {} for name in STATES}
        for k, s in group:
            number = s.job.seed if headings else k
            at[s.state][number] = at_step(s.step, s.n_steps, s.state == "running")
        table.add_row(*row, *map(numbers_at, at.values()))
    reasons = [*damaged, *(f"{s.job.name}: {s.state}; {s.reason}" for s in states if s.reason)]
    counts = {name: sum(s.state == name for s in states) for name in STATES}
    told = [f"{n} {name}" for name, n in counts.items() if n or name == "finished"]
    line, left_s = f"{what}: {counted(len(states), 'run')}, {', '.join(told)}", None
    if left := [s for s in states if not s.is_over]:
        left_s = _seconds_left(states, left, min(n_jobs, len(left)))
        line += f"; {time_left(left_s, min(n_jobs, len(left)), is_at_work)}"
    content = {
        "what": what,
        "counts": counts,
        "seconds_left": left_s,
        "is_at_work": is_at_work,
        "runs": [
            {
                **{"name": s.job.name, "folder": str(s.job.folder), "state": s.state},
                **{"step": s.step, "n_steps": s.n_steps, "reason": s.reason},
            }
            for s in states
        ],
    }
    has_ended = not (is_at_work or counts["running"])
    drawn = Group(table, *first_of(reasons), line)
    return Status(drawn, content, has_ended, bool(counts["failed"]))


def time_left(seconds: float | None, n_jobs: int, is_at_work: bool) -> str:
    """Last line of a status.

    >>> time_left(None, 2, True), time_left(60, 1, True)
    ('time left unknown: none has ended, 2 at a time', 'about 1:00 left, 1 at a time')
    """
    left = "time left unknown: none has ended"
    left = left if seconds is None else f"about {duration(seconds)} left"
    stopped = "" if is_at_work else "; not running: `isotrain run` starts what is left"
    return f"{left}, {n_jobs} at a time{stopped}"


def at_step(step: int | None, of_all: int | None, is_running: bool) -> str:
    """Step of a run, as text; empty if unknown."""
    if step is None:
        return "starting" if is_running else ""
    return f"step {step} of {of_all}" if of_all else f"step {step}"


def numbers_at(places: Mapping[int, str]) -> str:
    """Numbers of runs or trials, each with its step; before them those without one, in ranges."""
    plain = [number for number, place in places.items() if not place]
    at = [f"{number} ({place})" for number, place in places.items() if place]
    return ", ".join([listed(plain), *at] if plain else at)


def first_of(reasons: Sequence[str]) -> list[str]:
    """The first `MOST_REASONS` reasons, and how many more there are."""
    more = len(reasons) - MOST_REASONS
    return [*reasons[:MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]


def _seconds_left(states: Sequence[State], left: Sequence[State], n_jobs: int) -> float | None:
    """Time left, by the mean of finished runs of the same task, else of all; None without any."""
    took: dict[str, list[float]] = {}
    for s in states:
        if s.took_s is not None:
            took.setdefault(s.job.task, []).append(s.took_s)
    if not took:
        return None
    known = [seconds for own in took.values() for seconds in own]
    work = [fmean(took.get(s.job.task, known)) * s.share_left for s in left]
    return seconds_left(work, n_jobs)


def _took_s(record: Mapping[str, Any], job_file: Path, log: Path) -> float | None:
    """Seconds of a finished run, with its page; None if it was resumed or if unknown."""
    if record.get("resumed_after_step") is not None:
        return None
    own = float((record.get("timings_s") or {}).get("total") or 0)
    try:
        return max(own, log.stat().st_mtime - job_file.stat().st_mtime)
    except OSError:
        return own or None


def _failed_in_call(log: Path, lock: Path) -> bool:
    """Whether a failed run ended within the running call, which wrote its lock at the start."""
    try:
        return is_locked(lock) and log.stat().st_mtime_ns >= lock.stat().st_mtime_ns
    except OSError:
        return False


def _exit_code(log: Path) -> str:
    """Exit code of a run rejected before it had a record, from the last line of its log."""
    try:
        last = log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    except OSError:
        return ""
    return last.removeprefix(ENDED) if last.startswith(ENDED) else ""
