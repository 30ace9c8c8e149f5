"""`isotrain tune status`: the trials of a search by state, where each is, and the time left."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState
from rich import box
from rich.console import Group
from rich.table import Table

from isotrain.config.compose import run_folder
from isotrain.console import duration
from isotrain.jobs.locks import held, is_locked
from isotrain.launch.watch import at_step, first_of, numbers_at, show
from isotrain.study.progress import checkpoint_step, newest_step, steps_of
from isotrain.study.stored import stored
from isotrain.tune.plan import Plan, runs_of
from isotrain.tune.report import ASKED, ending
from isotrain.tune.storage import main_lock, n_to_come, trial_lock

STATES = (
    *("complete", "pruned", "degenerate", "diverged", "failed"),
    *("running", "interrupted", "waiting"),
)


class At(NamedTuple):
    """Where a trial is that has not ended."""

    step: int | None = None  # of its run: the newest one, or that of the checkpoint it goes on from
    n_steps: int | None = None  # of that run's whole training, at most
    seed: int | None = None  # of that run, where a trial has several
    share_left: float = 1.0  # of all runs of the trial; 1 where nothing is known


def show_status(plan: Plan, study: optuna.Study, n_jobs: int = 1, watch: bool = False) -> int:
    """1 where a trial has failed, otherwise 0; nothing is started.

    Args:
        plan: of the search.
        study: its trials.
        n_jobs: trials at a time where none is running.
        watch: the table is drawn anew until every trial has ended.
    """

    def look() -> tuple[Group, bool]:
        with held(main_lock(plan)):  # nobody takes a trial at this moment
            trials = study.get_trials(deepcopy=False)
            open_ones = [trial for trial in trials if trial.state == TrialState.RUNNING]
            owned = {t.number for t in open_ones if is_locked(trial_lock(plan, t.number))}
        at = {trial.number: where(plan, trial, trial.number in owned) for trial in open_ones}
        n_waiting = n_to_come(trials, plan, study.user_attrs.get(ASKED, plan.search.n_trials))
        table = status_table(plan, trials, owned, at, n_waiting, n_jobs)
        return table, not open_ones and not n_waiting

    show(look, watch)
    trials = study.get_trials(deepcopy=False)
    return int(any(trial.state == TrialState.FAIL for trial in trials))


def where(plan: Plan, trial: FrozenTrial, is_running: bool) -> At:
    """Where a trial is, by the folders of its runs."""
    jobs, _ = runs_of(plan, trial.params)
    folders = [run_folder(job.cfg, job.arm) for job in jobs]
    left = [k for k, folder in enumerate(folders) if not stored(folder).is_finished]
    if not left:
        return At(share_left=0.0 if jobs else 1.0)
    cfg, folder = jobs[left[0]].cfg, folders[left[0]]
    of_all = steps_of(cfg, stored(folder).result)
    newest = newest_step(folder / "metrics.jsonl")
    step = newest if is_running else checkpoint_step(folder)
    done = min(1.0, step / of_all) if step is not None and of_all else 0.0
    seed = int(cfg.seed) if len(jobs) > 1 else None
    return At(step, of_all, seed, (len(left) - done) / len(jobs))


def status_table(
    plan: Plan,
    trials: Sequence[FrozenTrial],
    owned: set[int],
    at: dict[int, At],
    n_waiting: int,
    n_jobs: int,
) -> Group:
    """A row for each state with its trials; reasons of failures and the time left below.

    Args:
        plan: of the search.
        trials: all of its storage.
        owned: numbers of those that a process is at.
        at: where each is that has not ended.
        n_waiting: trials that nothing was begun of.
        n_jobs: trials at a time where no process is at one.
    """
    by_state: dict[str, list[FrozenTrial]] = {state: [] for state in STATES}
    for trial in trials:
        if trial.number in at:
            by_state["running" if trial.number in owned else "interrupted"].append(trial)
        elif trial.state.is_finished():
            by_state[ending(trial)].append(trial)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("state", "trials"):
        table.add_column(heading)
    for state, own in by_state.items():
        if own:
            is_running = state == "running"
            places = {t.number: _at(at.get(t.number, At()), is_running) for t in own}
            table.add_row(state, numbers_at(places))
    counts = {state: len(own) for state, own in by_state.items()} | {"waiting": n_waiting}
    told = [f"{n} {state}" for state, n in counts.items() if n or state == "complete"]
    line = f"search {plan.search.name}: {sum(counts.values())} trials, {', '.join(told)}"
    n_left = counts["running"] + counts["interrupted"] + n_waiting
    if n_left:
        n_at_once = min(len(owned) or n_jobs, n_left)
        left = seconds_left(trials, [*at.values(), *[At()] * n_waiting], n_at_once)
        known = "time left unknown: none has ended" if left is None else ""
        line += f"; {known or f'about {duration(left or 0)} left'}, {n_at_once} at a time"
        line += "" if owned else "; no process is at it, and `isotrain tune run` goes on"
    reasons = [f"trial {t.number}: {t.user_attrs.get('why', '')}" for t in by_state["failed"]]
    return Group(table, *first_of(reasons), line)


def seconds_left(trials: Sequence[FrozenTrial], left: Sequence[At], n_jobs: int) -> float | None:
    """By the median of the trials that ended, pruned ones too; None where none has.

    The median, since a trial that was interrupted counts the time until it was taken up again. A
    failed trial says nothing of how long one takes.
    """
    ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    took = [t.duration.total_seconds() for t in ended if t.duration is not None]
    if not took:
        return None
    work = [median(took) * one.share_left for one in left]
    return max([*work, sum(work) / n_jobs])  # the longest has nobody to help it


def _at(at: At, is_running: bool) -> str:
    """Where a trial is, empty where there is nothing to tell."""
    step = at_step(at.step, at.n_steps, is_running and at.share_left == 1)
    seed = "" if at.seed is None else f"seed {at.seed}"
    return ", ".join(filter(None, [seed, step]))
