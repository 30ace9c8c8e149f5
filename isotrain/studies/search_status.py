"""Status of a search: trials by state, their progress, and the time left."""

from statistics import median
from typing import NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState
from rich import box
from rich.console import Group
from rich.table import Table

from isotrain.console import counted
from isotrain.jobs.archive import Archive, Job, locate
from isotrain.jobs.pool import call_at_work, seconds_left
from isotrain.studies.search_plan import Plan, trial_jobs
from isotrain.studies.status import Status, at_step, first_of, numbers_at, state_of, time_left
from isotrain.studies.trials import ASKED, BAD, ending, trials_of

STATES = ("complete", "pruned", *BAD, "failed", "running", "interrupted", "waiting")


class At(NamedTuple):
    """Where a trial is that has not ended."""

    state: str = "waiting"  # running | interrupted | waiting
    place: str = ""
    share_left: float = 1.0  # of all runs of the trial; 1 where nothing is known


def status_of_search(plan: Plan, study: optuna.Study, n_jobs: int | None = None) -> Status:
    """The status of a search; `n_jobs` trials at a time where no call is running."""
    trials, call = trials_of(study), call_at_work(plan.folder)
    archive = Archive(plan.folder)
    at = {t.number: where(plan, t, archive) for t in trials if not t.state.is_finished()}
    by_state: dict[str, dict[int, str]] = {state: {} for state in STATES}
    for trial in trials:
        one = at.get(trial.number)
        by_state[one.state if one else ending(trial)][trial.number] = one.place if one else ""
    n_asked = study.user_attrs.get(ASKED, plan.search.n_trials)
    n_unmade = 0 if plan.is_grid else max(0, n_asked - len(trials))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("state", "trial numbers"):
        table.add_column(heading)
    for state, own in by_state.items():
        unmade = f"{n_unmade} not made yet" if n_unmade and state == "waiting" else ""
        if own or unmade:
            table.add_row(state, ", ".join(filter(None, [numbers_at(own), unmade])))
    counts = {state: len(own) for state, own in by_state.items()}
    counts["waiting"] += n_unmade
    told = [f"{n} {state}" for state, n in counts.items() if n or state == "complete"]
    line, left = (
        f"search {plan.search.name}: {counted(sum(counts.values()), 'trial')}, {', '.join(told)}",
        None,
    )
    shares = [one.share_left for one in at.values()] + [1.0] * n_unmade
    if shares:
        n_at_once = min(call.n if call else n_jobs or 1, len(shares))
        ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        took = [t.duration.total_seconds() for t in ended if t.duration is not None]
        if took:  # the median: a trial may have waited for another process
            left = seconds_left([median(took) * share for share in shares], n_at_once)
        line += f"; {time_left(left, n_at_once, bool(call))}"
    failed = {t.number: t.user_attrs.get("why", "") for t in trials if ending(t) == "failed"}
    reasons = [f"trial {number}: {why}" for number, why in failed.items()]
    content = {
        "what": f"search {plan.search.name}",
        "counts": counts,
        "seconds_left": left,
        "is_at_work": bool(call),
        "trials": [
            {"number": number, "state": state, "place": place, "why": failed.get(number, "")}
            for state, own in by_state.items()
            for number, place in own.items()
        ],
    }
    has_ended = not (call or counts["running"])
    return Status(Group(table, *first_of(reasons), line), content, has_ended, bool(failed))


def jobs_left(plan: Plan, study: optuna.Study) -> list[Job]:
    """The runs of the trials that have not ended."""
    trials = [trial for trial in trials_of(study) if not trial.state.is_finished()]
    return [job for trial in trials for job in _jobs(plan, trial)]


def _jobs(plan: Plan, trial: FrozenTrial) -> list[Job]:
    """Its runs; none where its values are not there, or cannot run."""
    return trial_jobs(plan, trial.params, trial.number)[0] if trial.params else []


def where(plan: Plan, trial: FrozenTrial, archive: Archive) -> At:
    """Where a trial is, by the records of its runs."""
    states = [state_of(job, plan.folder) for job in locate(_jobs(plan, trial), archive)]
    left = [one for one in states if one.state != "finished"]
    if not left:
        return At(share_left=0.0 if states else 1.0)
    one, is_running = left[0], left[0].state == "running"
    state = "running" if is_running else "waiting" if one.step is None else "interrupted"
    seed = f"seed {one.job.seed}" if len(states) > 1 else ""
    place = ", ".join(filter(None, [seed, at_step(one.step, one.n_steps, is_running)]))
    return At(state, place, (len(left) - 1 + one.share_left) / len(states))
