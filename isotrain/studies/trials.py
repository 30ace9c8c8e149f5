"""Trials of a search in Optuna's storage: open, count and queue them, and suggest values."""

import json
import random
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from isotrain.console import say
from isotrain.runs.files import check_inside
from isotrain.runs.shapes import COUNT, misfit
from isotrain.runs.stored import DATABASE, PlanError
from isotrain.studies.search import Search
from isotrain.studies.search_plan import Plan
from isotrain.studies.space import Parameter, Value, grid

IDENTITY = "identity"
ASKED = "n_trials"  # in the storage: number of trials requested by the last call
POINT = "point"  # the grid point of a trial
VALUES = "values"  # of a complete trial
OF_SEARCH = {IDENTITY: dict, ASKED: COUNT}  # attributes in the storage
OF_TRIAL = {"bad": str, "why": str, "scores": [float], "code": [str], POINT: dict, VALUES: [float]}
WAIT_S = 60.0  # for another process writing to the storage
NAMES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "not ended",
    TrialState.WAITING: "not begun",
}
BAD = ("degenerate", "diverged", "undefined")  # endings caused by the values


@contextmanager
def opened(plan: Plan, to_read: bool = False) -> Iterator[optuna.Study]:
    """Open the trials of a plan; created if there are none.

    With `to_read`, trials of another search are opened too, with a note on stderr.

    Raises:
        PlanError: they belong to another search, or the storage fails.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = plan.folder / DATABASE
    storage = None
    try:
        check_inside(plan.folder, path)
        try:
            storage = RDBStorage(
                "sqlite:///" + str(path).replace("{", "{{").replace("}", "}}"),
                engine_kwargs={"connect_args": {"timeout": WAIT_S}},
            )
            study = optuna.create_study(
                storage=storage,
                study_name=plan.search.name,
                direction="maximize" if plan.direction == "max" else "minimize",
                pruner=_pruner(plan),
                load_if_exists=True,
            )
        except Exception as error:  # a damaged file may raise anything
            raise PlanError(
                f"{path} cannot be opened ({type(error).__name__}: "
                f"{str(error).splitlines()[0]}); move it away, or give --name OTHER"
            ) from error
        if damage := _damage(study):
            raise PlanError(f"{path} is damaged ({damage}); move it away, or give --name OTHER")
        if another := difference(study, plan):
            if not to_read:
                raise PlanError(another)
            print(another, file=sys.stderr)
        elif not to_read:
            study.set_user_attr(IDENTITY, plan.identity)
        yield study
    except (StorageInternalError, SQLAlchemyError) as error:
        raise PlanError(
            f"{path} cannot be read or written now ({type(error).__name__}: "
            f"{str(error).splitlines()[0]}); the same command resumes when it can"
        ) from error
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def _damage(study: optuna.Study) -> str:
    """Content of a storage that no search has written, and where; empty if none."""
    try:
        parts = [("the search", study.user_attrs, OF_SEARCH)]
        for t in study.get_trials():
            values = {VALUES: t.values} if t.state == TrialState.COMPLETE else {}
            parts.append((f"trial {t.number}", t.user_attrs | values, OF_TRIAL))
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # from Optuna's reading
        return f"{type(error).__name__}: {error}"
    found = (f"{name}: {reason}" for name, own, shape in parts if (reason := misfit(own, shape)))
    return next(found, "")


def trials_of(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count, numbered consecutively, without replaced ones."""
    trials = counted(study)
    for number, trial in enumerate(trials):
        trial.number = number
    return trials


def counted(study: optuna.Study) -> list[FrozenTrial]:
    """The same with storage numbers, each at the position of the first trial it replaces."""
    trials = study.get_trials()
    replaced = {number for trial in trials for number in _history(trial)}
    counted = (trial for trial in trials if trial.number not in replaced)
    return sorted(counted, key=lambda trial: min([*_history(trial), trial.number]))


def n_to_come(study: optuna.Study, plan: Plan) -> int:
    """Number of trials still to create or queued, at most those requested now."""
    trials, n_asked = trials_of(study), plan.search.n_trials
    n_queued = sum(trial.state == TrialState.WAITING for trial in trials)
    if not plan.is_grid:
        return max(n_queued, n_asked - len(trials) + n_queued)
    n_failed = sum(trial.state == TrialState.FAIL for trial in trials)
    return max(0, min(n_queued, n_asked - (len(trials) - n_queued - n_failed)))


def ending(trial: FrozenTrial) -> str:
    """How a trial ended, in one word."""
    return str(trial.user_attrs.get("bad") or NAMES[trial.state])


def queue_left(study: optuna.Study) -> None:
    """Requeue the trials that a call left running, with their values and reports.

    If it is killed midway, no trial is lost or duplicated.
    """
    trials = study.get_trials()
    replaced = {number for trial in trials for number in _history(trial)}
    for trial in trials:
        if trial.state != TrialState.RUNNING:
            continue
        if trial.number not in replaced:
            trial.user_attrs = {k: v for k, v in trial.user_attrs.items() if k == POINT}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Optuna calls it experimental
                RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)(study, trial)
        study.tell(trial.number, state=TrialState.FAIL)


def _history(trial: FrozenTrial) -> list[int]:
    """The numbers of the trials that this one replaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RetryHeartbeatStaleTrialCallback.retry_history(trial)


def enqueue_points(study: optuna.Study, plan: Plan) -> None:
    """Queue the grid points without a trial, and those whose trials have all failed.

    Optuna's `BruteForceSampler` may draw a point twice, and never tries a failed one again.
    """
    good = [t for t in trials_of(study) if t.state != TrialState.FAIL]
    known = {_point_of(trial) for trial in good}
    failed = {_point_of(trial) for trial in trials_of(study)} - known
    for point in grid(plan.search.space)[: plan.search.n_trials]:
        if frozenset(point.items()) not in known:
            study.enqueue_trial(point, user_attrs={POINT: point})
    if failed:
        say(f"points whose trial failed, tried again: {len(failed)}")


def _point_of(trial: FrozenTrial) -> frozenset[tuple[str, Value]]:
    """Identity of a trial's point; its `params` may be incomplete after a kill."""
    point: Mapping[str, Value] = trial.user_attrs[POINT]
    return frozenset(point.items())


def difference(study: optuna.Study, plan: Plan) -> str:
    """How the trials differ from the plan, in a sentence; empty if they match."""
    identity = json.loads(json.dumps(plan.identity))  # as stored
    known: dict[str, Any] = study.user_attrs.get(IDENTITY, identity)
    changed = [key for key in identity if known.get(key) != identity[key]]
    if not changed:
        return ""
    if changed == ["data"]:
        was, now = (", ".join(dict.fromkeys(own["data"])) for own in (known, identity))
        changed = [f"what its runs read, {was}, and what they would read now, {now},"]
    return (
        f"{plan.folder} holds {len(trials_of(study))} trials of another search "
        f"of this name ({', '.join(changed)} differ), and their scores do not compare; give "
        f"--name OTHER, or put {'it' if len(changed) == 1 else 'them'} back"
    )


def suggested(trial: Trial, space: Sequence[Parameter]) -> dict[str, Value]:
    """The values of a trial: existing ones, and suggestions for the missing ones."""
    values: dict[str, Value] = {}
    for p in space:
        if not p.is_active(values):
            continue
        if p.options:
            values[p.key] = trial.suggest_categorical(p.key, p.options)
        elif p.is_whole:
            step = int(p.step or 1)
            values[p.key] = trial.suggest_int(p.key, int(p.low), int(p.high), log=p.log, step=step)
        else:
            values[p.key] = trial.suggest_float(p.key, p.low, p.high, log=p.log, step=p.step)
    return values


def sampler_of(search: Search, number: int) -> BaseSampler:
    """The sampler of a trial, by its number."""
    seed = random.Random(f"{search.seed}/{number}").getrandbits(32)
    if search.sampler == "tpe":
        return TPESampler(seed=seed, n_startup_trials=search.startup)
    return RandomSampler(seed=seed)  # grid points are given


def _pruner(plan: Plan) -> optuna.pruners.BasePruner:
    search = plan.search
    if search.pruner == "none":
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(
        n_startup_trials=search.startup,
        n_warmup_steps=search.warmup + 1,
        n_min_trials=search.startup,  # that have this evaluation
    )
