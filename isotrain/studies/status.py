"""How far the runs of a study or sweep are, from its `study.json` and their folders."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich import box
from rich.table import Table

from isotrain.console import counted, duration
from isotrain.runs.stored import checkpoint_step, is_owned, newest_step, steps_of, stored
from isotrain.studies.call import Job
from isotrain.studies.record import Plan, listed
from isotrain.studies.slurm import SlurmError, read_jobs, states_of

STATES = ("finished", "running", "interrupted", "failed", "waiting")
PENDING = "pending in Slurm"  # how the line on such runs begins
FAILED_LINE = "isotrain: failed: "  # the last line of the log of a run that failed


class Status(NamedTuple):
    """Output of `isotrain status`."""

    lines: Sequence[str | Table]
    has_failed: bool


class State(NamedTuple):
    """Progress of one run."""

    job: Job
    state: str  # one of STATES
    step: int | None = None  # the latest one, or that of the checkpoint it resumes from
    n_steps: int | None = None  # at most, of the whole training
    reason: str = ""  # of a failure, or which file is damaged or incomplete
    took_s: float | None = None  # of an uninterrupted finished run

    @property
    def share_left(self) -> float:
        """Remaining share of training, 1 if unknown."""
        if self.state == "finished":
            return 0.0
        return max(0.0, 1 - (self.step or 0) / self.n_steps) if self.n_steps else 1.0


def status_of(plan: Plan) -> Status:
    """One row per task and method with the seeds in each state; reasons and time left below."""
    states, slurm_lines = in_slurm([state_of(job, plan.folder) for job in plan.jobs], plan.folder)
    table = Table(
        title="seeds by state",
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for heading in ("task", "method", *STATES):
        table.add_column(heading)
    for row in product(plan.study.tasks, plan.study.methods):
        runs = [s for s in states if (s.job.task, s.job.method) == row]
        table.add_row(*row, *(_seeds([s for s in runs if s.state == name]) for name in STATES))
    reasons = [f"{s.job.name}: {s.state}; {s.reason}" for s in states if s.reason]
    counts = {name: sum(s.state == name for s in states) for name in STATES}
    parts = [f"{n} {name}" for name, n in counts.items() if n or name == "finished"]
    line = f"{plan.kind} {plan.name}: {counted(len(states), 'run')}, {', '.join(parts)}"
    left_s = seconds_left(states, max(1, counts["running"]))
    if counts["finished"] < len(states):
        line += f"; about {duration(left_s)} left" if left_s is not None else "; time left unknown"
        is_at_work = counts["running"] or any(text.startswith(PENDING) for text in slurm_lines)
        line += "" if is_at_work else "; none is running: the same command goes on"
    return Status([table, *reasons, *slurm_lines, line], bool(counts["failed"]))


def in_slurm(states: Sequence[State], folder: Path) -> tuple[list[State], list[str]]:
    """States updated from Slurm, and text lines on the jobs there."""
    slurm_jobs = read_jobs(folder)
    jobs = {
        s.job: job
        for s in states
        if s.state != "finished" and (job := slurm_jobs.jobs.get(s.job.log)) is not None
    }
    if not jobs:
        return [*states], []
    try:
        slurm_states = states_of(job.id for job in jobs.values())
    except SlurmError as error:
        return [*states], [f"{error}: what is pending or runs in Slurm may stand as waiting"]
    new_states, waiting = list[State](), defaultdict[str, list[str]](list)
    lines = []
    for s in states:
        job = jobs.get(s.job)
        now = slurm_states.get(job.id) if job else None
        if job is None or now is None:
            new_states.append(s)
        elif now.state == "PENDING":
            new_states.append(s)
            waiting[now.reason].append(s.job.name)
        else:
            is_there = not now.is_over
            new_states.append(s._replace(state="running") if is_there else s)
            note = f"{now.time_left} left" if is_there else f"{now.state} {now.why}".rstrip()
            step = at_step(s.step, s.n_steps)
            text = ", ".join(filter(None, [f"job {job.id} on {now.node}", step, note]))
            lines.append(f"{s.job.name}: {text}; {slurm_jobs.logs(job)}")
    lines += [f"{PENDING} ({reason}): {', '.join(names)}" for reason, names in waiting.items()]
    return new_states, lines


def state_of(job: Job, folder: Path) -> State:
    """Progress of a run, from its folder and the log below the plan's `folder`."""
    record, damage = stored(job.folder)
    if record.get("status") == "finished":
        is_whole = record.get("resumed_after_step") is None
        total_s = float((record.get("timings_s") or {}).get("total") or 0)
        return State(job, "finished", took_s=total_s if is_whole else None)
    is_running = is_owned(job.folder)
    if damage:
        return State(job, "running" if is_running else "waiting", reason=damage)
    if not record:
        failure = "" if is_running else _failure(folder / "logs" / f"{job.log}.log")
        return State(
            job, "failed" if failure else "running" if is_running else "waiting", reason=failure
        )
    n_steps = steps_of(record)
    if is_running:
        return State(job, "running", newest_step(job.folder / "metrics.jsonl"), n_steps)
    step = checkpoint_step(job.folder)
    if record["status"] == "failed":
        reason = str(record.get("error") or "no reason is recorded").splitlines()[0]
        return State(job, "failed", step, n_steps, reason)
    return State(job, "interrupted", step, n_steps)


def seconds_left(states: Sequence[State], n_at_once: int) -> float | None:
    """Time left by the mean of finished runs; None without any."""
    times_s = [s.took_s for s in states if s.took_s is not None]
    return fmean(times_s) * sum(s.share_left for s in states) / n_at_once if times_s else None


def at_step(step: int | None, of_all: int | None) -> str:
    """Step of a run, as text; empty if unknown."""
    if step is None:
        return ""
    return f"step {step} of {of_all}" if of_all else f"step {step}"


def _seeds(states: Sequence[State]) -> str:
    """Seeds of some runs, as text; those with a step come last."""
    step_texts = {s.job.seed: at_step(s.step, s.n_steps) for s in states}
    plain = [seed for seed, text in step_texts.items() if not text]
    with_step = [f"{seed} ({text})" for seed, text in step_texts.items() if text]
    return ", ".join([listed(plain), *with_step] if plain else with_step)


def _failure(log: Path) -> str:
    """Why a run without a record failed, from the last line of its log; else empty."""
    try:
        last_line = log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    except OSError:
        return ""
    return last_line.removeprefix(FAILED_LINE) if last_line.startswith(FAILED_LINE) else ""
