"""The trials of a search in `study.db`, shared by any number of processes of one machine.

A trial belongs to the process that holds its lock. One that is RUNNING and whose lock is free was
left behind (by Ctrl-C, a kill, a power cut) and is taken up again under its number, with its
values: its runs go on from their checkpoints.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import optuna
from optuna.exceptions import StorageInternalError
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from isotrain.jobs.locks import held, take
from isotrain.tune.definition import Search, TuneError
from isotrain.tune.plan import Plan
from isotrain.tune.space import Parameter, Value, grid

DATABASE, IDENTITY = "study.db", "identity"
POINT = "point"  # of a grid, that a trial was made for
WAIT_S = 60.0  # for another process that writes


class Taken(NamedTuple):
    """A trial of this process."""

    trial: Trial
    values: dict[str, Value]
    lock: int
    is_new: bool


@contextmanager
def opened(plan: Plan, must_exist: bool = False) -> Iterator[optuna.Study]:
    """The study of a plan; made where there is none, unless it must exist.

    Raises:
        TuneError: the storage holds trials of another search, cannot be read, or is not there; or
            it fails while it is open.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = plan.folder / DATABASE
    if must_exist and not path.is_file():
        raise TuneError(
            f"no trial of search {plan.search.name} has been made under {plan.folder}; start with "
            f"isotrain tune run {plan.search.name}"
        )
    try:
        for name in ("jobs", "logs", "locks"):
            (plan.folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TuneError(f"cannot write to {plan.folder}; choose another output_dir=...") from error
    storage = None
    try:
        with held(main_lock(plan)):
            try:
                storage = RDBStorage(
                    "sqlite:///" + str(path).replace("{", "{{").replace("}", "}}"),
                    engine_kwargs={"connect_args": {"timeout": WAIT_S}},
                )
                study = optuna.create_study(
                    storage=storage,
                    study_name=plan.search.name,
                    direction="maximize" if plan.direction == "max" else "minimize",
                    pruner=_pruner(plan.search),
                    load_if_exists=True,
                )
            except Exception as error:  # whatever a damaged file makes of it
                raise TuneError(
                    f"{path} cannot be opened ({type(error).__name__}: "
                    f"{str(error).splitlines()[0]}); move it away, or give --name OTHER"
                ) from error
            _refuse_another(study, plan)
        yield study
    except (StorageInternalError, SQLAlchemyError) as error:
        raise TuneError(
            f"{path} cannot be read or written now ({type(error).__name__}: "
            f"{str(error).splitlines()[0]}); the same command goes on when it can"
        ) from error
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def main_lock(plan: Plan) -> Path:
    """The lock of whoever takes a trial, or writes a table."""
    return plan.folder / "locks" / "main"


def next_trial(study: optuna.Study, plan: Plan) -> Taken | None:
    """A trial that was left behind, else a new one; None where all were made.

    Values depend on the seed of the sampler, the number of the trial and the trials that have
    ended: with one at a time a search gives the same trials however often it was stopped. Of a
    grid a new trial has the first point that no trial has.
    """
    with held(main_lock(plan)):
        for old in still_running(study):
            lock = take(trial_lock(plan, old.number))
            if lock is not None:
                # Its process may have ended it since it was looked up, and given the lock back.
                if any(one.number == old.number for one in still_running(study)):
                    study.sampler = sampler_of(plan.search, old.number)
                    # The one way to report to a trial that another process asked for.
                    trial = Trial(study, old._trial_id)
                    return Taken(trial, _values(trial, plan.search.space), lock, is_new=False)
                os.close(lock)
        trials = study.get_trials(deepcopy=False)
        waiting = any(trial.state == TrialState.WAITING for trial in trials)
        if plan.is_grid and not waiting:
            tried = set(map(_point_of, trials))
            new = next((point for key, point in _points(plan).items() if key not in tried), None)
            if new is None:
                return None
            study.enqueue_trial(new, user_attrs={POINT: new})
        elif not waiting and len(trials) >= plan.search.n_trials:
            return None
        study.sampler = sampler_of(plan.search, len(trials))
        trial = study.ask()
        lock = take(trial_lock(plan, trial.number))
        assert lock is not None
        return Taken(trial, _values(trial, plan.search.space), lock, is_new=True)


def enqueue_failed_points(study: optuna.Study, plan: Plan) -> int:
    """How many points of a grid are put in line again: those whose trials have all failed."""
    if not plan.is_grid:
        return 0
    with held(main_lock(plan)):
        trials = study.get_trials(deepcopy=False)
        failed = {_point_of(trial) for trial in trials if trial.state == TrialState.FAIL}
        failed -= {_point_of(trial) for trial in trials if trial.state != TrialState.FAIL}
        points = [point for key, point in _points(plan).items() if key in failed]
        for point in points:
            study.enqueue_trial(point, user_attrs={POINT: point})
        return len(points)


def n_tried(trials: Sequence[FrozenTrial], plan: Plan) -> int:
    """How much of `n_trials` is done: trials that have ended, or points of a grid that have one."""
    ended = [trial for trial in trials if trial.state.is_finished()]
    return len(set(map(_point_of, ended)) if plan.is_grid else ended)


def n_to_come(trials: Sequence[FrozenTrial], plan: Plan, n_asked: int) -> int:
    """How many of `n_asked` trials, or points of a grid, no trial has begun yet."""
    in_line = sum(trial.state == TrialState.WAITING for trial in trials)
    made = set(map(_point_of, trials)) if plan.is_grid else trials
    return max(0, n_asked - len(made)) + in_line


def trial_lock(plan: Plan, number: int) -> Path:
    """The lock of the process that a trial belongs to."""
    return plan.folder / "locks" / f"trial-{number}"


def still_running(study: optuna.Study) -> list[FrozenTrial]:
    """Trials without an end, of whatever process."""
    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


def _refuse_another(study: optuna.Study, plan: Plan) -> None:
    identity = json.loads(json.dumps(plan.identity))
    known = study.user_attrs.get(IDENTITY)
    if known is None:
        study.set_user_attr(IDENTITY, identity)
        return
    if changed := [key for key in identity if known.get(key) != identity[key]]:
        raise TuneError(
            f"{plan.folder} holds {len(study.get_trials(deepcopy=False))} trials of another search "
            f"of this name ({', '.join(changed)} differ), and their scores do not compare; give "
            f"--name OTHER, or put {'it' if len(changed) == 1 else 'them'} back"
        )


def _points(plan: Plan) -> dict[frozenset[tuple[str, Value]], dict[str, Value]]:
    """The points of a grid to try, in order, by what tells them apart."""
    points = grid(plan.search.space)[: plan.search.n_trials]
    return {frozenset(point.items()): point for point in points}


def _point_of(trial: FrozenTrial) -> frozenset[tuple[str, Value]]:
    """What tells the point of a trial from others; that of one in line is in its attributes."""
    point: Mapping[str, Value] = trial.params or trial.user_attrs.get(POINT, {})
    return frozenset(point.items())


def _values(trial: Trial, space: Sequence[Parameter]) -> dict[str, Value]:
    """The values of a trial: those it has, and suggestions for what it lacks."""
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
    """What draws the values of a trial, by its number."""
    seed = random.Random(f"{search.seed}/{number}").getrandbits(32)
    if search.sampler == "tpe":
        return TPESampler(seed=seed, n_startup_trials=search.startup)
    return RandomSampler(seed=seed)  # a point of a grid is given


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    if search.pruner == "none":
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(
        n_startup_trials=search.startup,
        n_warmup_steps=search.warmup + 1,
        n_min_trials=search.startup,  # that have the evaluation, too
    )
