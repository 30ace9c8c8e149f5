"""Run a search: Optuna proposes trials and records their scores, the pool runs them.

`<output_dir>/tune/<name>/study.db` stores the trials. Only the owner of the pool's lock uses it, so
a trial that is RUNNING when a call starts was left by a call that was stopped, killed or failed.
It is marked as failed and queued again with its values; its runs resume from their checkpoints. Its
replacement takes its number wherever trials are shown (`trials_of`), so that an interrupted search
reads like an uninterrupted one.
"""

import math
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from isotrain.config.shipped import text_of
from isotrain.console import REJECTED, say, score_text
from isotrain.jobs.archive import Job
from isotrain.jobs.pool import End, Pool
from isotrain.jobs.process import Backend, last_lines, local, warm_up
from isotrain.runs.files import read_records, replace_text, write_json
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import COPY, SEARCH, stored
from isotrain.studies.plan import judge_parts
from isotrain.studies.search_plan import Plan, check_search, trial_jobs
from isotrain.studies.space import overrides_of
from isotrain.studies.trials import (
    ASKED,
    counted,
    ending,
    enqueue_points,
    n_to_come,
    opened,
    queue_left,
    sampler_of,
    suggested,
    trials_of,
)

LOOK_S = 1.0  # polling interval of a run's log
HOPELESS = 3  # a call stops after this many failed trials and no others


class FailedError(Exception):
    """A trial whose run failed, or cannot run."""


class StoppedError(Exception):
    """A trial whose run was stopped by a signal: the next call queues it again."""


def run_search(
    plan: Plan,
    n_jobs: int = 1,
    backend: Backend = local,
    report: Callable[[Plan, Sequence[FrozenTrial], optuna.Study], object] = lambda *_: None,
) -> int:
    """Exit code: 0 if every trial has ended, 1 if one of this call failed, 128 + signal if stopped.

    Trials are created on demand, `n_jobs` at a time. Finished runs are read, not trained again. A
    failed run is tried once more; then its trial is marked as failed, with the reason. A later call
    tries a failed grid point again. A call stops after `HOPELESS` failed trials and no others. At
    the end `report` is called.

    Raises:
        PlanError: incompatible parts, the storage of another search, or a storage failure; no run
            is started then.
    """
    with Pool(plan.folder, n_jobs, f"search {plan.search.name}", backend) as pool:
        if (checked := pool.check_parts(lambda: check_search(plan))) is None:
            return pool.code(0)
        plan = checked
        with opened(plan) as study:
            write_json(plan.folder / SEARCH, redacted(plan.given | plan.goal))
            if file := plan.given["file"]:
                replace_text(plan.folder / COPY, text_of("tune", file))
            study.set_user_attr(ASKED, plan.search.n_trials)
            queue_left(study)
            if plan.is_grid:
                enqueue_points(study, plan)
            n_to_do = n_to_come(study, plan)
            n_ended = sum(trial.state.is_finished() for trial in trials_of(study))
            say(
                f"search {plan.search.name}: {plan.search.n_trials} trials, {n_ended} ended "
                f"before, {n_jobs} at a time; {plan.folder}"
            )
            call = _Call(plan, study, pool, n_to_do)
            if n_to_do:
                if backend is local:
                    warm_up()
                call.run(n_jobs)
            if pool.received:
                return pool.code(0)
            if call.is_hopeless:
                say(
                    f"stopped: all {call.n_failed} trials of this call failed; correct the cause, "
                    f"then give the same command again{', with more --trials' * (not plan.is_grid)}"
                )
            report(plan, trials_of(study), study)
            return int(call.n_failed + call.n_stopped > 0)


class _Call:
    """This process's part of a search."""

    def __init__(self, plan: Plan, study: optuna.Study, pool: Pool, n_to_do: int) -> None:
        self._plan, self._study, self._pool, self._n_to_do = plan, study, pool, n_to_do
        self._choosing, self._is_over = threading.Lock(), False
        self.n_good = self.n_failed = self.n_stopped = 0

    @property
    def is_hopeless(self) -> bool:
        """Whether every trial of this call has failed so far."""
        return self.n_failed >= HOPELESS and not self.n_good

    def run(self, n_jobs: int) -> None:
        """Run trials, `n_jobs` at a time; an error outside a trial ends them and is raised."""
        with ThreadPoolExecutor(n_jobs) as threads:
            for turn in [threads.submit(self._work) for _ in range(n_jobs)]:
                turn.result()

    def _work(self) -> None:
        try:
            while (trial := self._next()) is not None:
                self._tell(trial)
        except BaseException:
            self._is_over = True
            raise

    def _next(self) -> Trial | None:
        with self._choosing:  # SQLite gives the same queued trial to two threads that ask at once
            if self._is_over or self._pool.received or self.is_hopeless or not self._n_to_do:
                return None
            self._n_to_do -= 1
            return self._study.ask()

    def _tell(self, trial: Trial) -> None:
        """Run a trial and record its end; a stopped trial is left unchanged."""
        score, state, why = None, TrialState.COMPLETE, ""
        number = [one.number for one in counted(self._study)].index(trial.number)  # as shown
        try:
            score = self._score(trial, number)
        except StoppedError:
            self.n_stopped += 1
            self._is_over = True
            return
        except optuna.TrialPruned as end:
            state, why = TrialState.PRUNED, str(end)
        except FailedError as end:
            state, why = TrialState.FAIL, str(end)
        if why:
            trial.set_user_attr("why", why)
        told = self._study.tell(trial, score, state)
        with self._choosing:
            self.n_good += state != TrialState.FAIL
            self.n_failed += state == TrialState.FAIL
        value = f"{self._plan.objective} {score_text(told.value)}" if told.value is not None else ""
        say(": ".join(filter(None, (f"{ending(told)} trial {number}", value, why))))

    def _score(self, trial: Trial, number: int) -> float:
        """The mean score of a trial's runs.

        Its values depend on the sampler's seed, its number and ended trials: with one trial at a
        time, a search gives the same trials however often it is interrupted.
        """
        with self._choosing:
            self._study.sampler = sampler_of(self._plan.search, number)
            values = suggested(trial, self._plan.search.space)
        say(f"start trial {number}: {' '.join(overrides_of(values))}")
        jobs, mistakes = trial_jobs(self._plan, values, number)
        if any(job.id.reads not in self._plan.data for job in jobs):  # were not validated together
            found, jobs = judge_parts(jobs, lambda job: job.name)
            mistakes = list(found)
        elif jobs:
            jobs = [job.on_data(self._plan.data[job.id.reads]) for job in jobs]
        if mistakes:
            raise FailedError(f"cannot run: {'; '.join(mistakes)}")
        scores = self._scores(trial, jobs)
        return math.fsum(scores) / len(scores)

    def _scores(self, trial: Trial, jobs: Sequence[Job]) -> list[float]:
        scores, code = list[float](), set[str]()
        for k, job in enumerate(jobs):
            watch = _Pruning(trial, job, self._plan)  # pruned by its first seed, scored by all
            end = self._pool.one(job, watch.is_to_stop if k == 0 else lambda: False)
            if end.state == "failed" and not _is_final(job, end):
                say(f"{job.name} is tried once more")
                end = self._pool.one(job, watch.is_to_stop if k == 0 else lambda: False)
            if end.state == "failed":
                raise _failure(trial, job, end)
            if end.state == "stopped":
                if watch.reason and not self._pool.received:
                    raise optuna.TrialPruned(watch.reason)
                raise StoppedError
            scores.append(_score(trial, job, self._plan))
            if k == 0:
                watch.report()  # others are compared with its full curve
            environment = stored(job.folder).result.get("environment", {})
            code.add(str(environment.get("git") or environment.get("isotrain")))
            trial.set_user_attr("scores", scores)
            trial.set_user_attr("code", sorted(code))
        return scores


class _Pruning:
    """Report the evaluations of a trial's first run, and ask the pruner."""

    def __init__(self, trial: Trial, job: Job, plan: Plan) -> None:
        self._trial, self._plan, self._file = trial, plan, job.folder / "metrics.jsonl"
        self._n, self._look_at, self.reason = 0, 0.0, ""

    def is_to_stop(self) -> bool:
        """Whether to prune the trial; checked once a second."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + LOOK_S
        return self.report(asking=True)

    def report(self, asking: bool = False) -> bool:
        """Report new evaluations one by one; whether the pruner stops the trial, if `asking`."""
        found = evaluations(self._file, self._plan.objective)
        better = max if self._plan.direction == "max" else min
        for number in range(self._n + 1, len(found) + 1):
            self._n = number
            if not math.isfinite(found[number - 1]):
                continue
            with warnings.catch_warnings():  # a resumed trial has already reported these
                warnings.simplefilter("ignore")
                self._trial.report(found[number - 1], number)
            if asking and self._trial.should_prune():
                best = better(value for value in found[:number] if math.isfinite(value))
                side = "below" if self._plan.direction == "max" else "above"
                self.reason = f"{side} the median at evaluation {number}: {best:.4g} at best"
                return True
        return False


def evaluations(file: Path, key: str) -> list[float]:
    """The values of a key at the evaluations after step 0, in order; NaN if not finite.

    A step that was evaluated twice (after a resume, or with selected weights) counts once, with its
    first value.
    """
    found: dict[float, float] = {}
    for record in read_records(file):
        if key in record and record["step"] > 0:
            found.setdefault(record["step"], record[key])
    return [found[step] for step in sorted(found)]


def _score(trial: Trial, job: Job, plan: Plan) -> float:
    """The score of a finished run.

    Raises:
        FailedError: the run has no score.
        TrialPruned: its predictions are collapsed, or its score is undefined.
    """
    result = stored(job.folder).result
    scores = result.get("scores")
    if not isinstance(scores, dict):
        raise FailedError(f"{job.name}: {job.folder / 'result.json'} lacks scores")
    score = scores.get(plan.objective)
    if score is None:
        there = ", ".join(key for key in scores if key.startswith("val/"))
        raise FailedError(f"{job.name} has no {plan.objective}; it has {there}")
    if reason := result.get("degenerate_reason"):
        raise _bad(trial, "degenerate", f"{job.name}: {reason}")
    if not math.isfinite(score):
        raise _bad(trial, "undefined", f"{plan.objective} of {job.name} is not finite")
    return float(score)


def _is_final(job: Job, end: End) -> bool:
    """Whether a failed run would fail again if repeated."""
    return end.code == REJECTED or _has_diverged(job)


def _has_diverged(job: Job) -> bool:
    return str(stored(job.folder).result.get("error", "")).startswith("NonFiniteError")


def _failure(trial: Trial, job: Job, end: End) -> Exception:
    """The exception that ends a trial whose run failed."""
    lines = last_lines(end.log)[:-1]  # the last is the pool's
    why = f"{job.name}: exit code {end.code}{f'; {lines[-1].strip()}' if lines else ''}"
    if _has_diverged(job):
        return _bad(trial, "diverged", why)
    again = "" if _is_final(job, end) else "; also when it was tried once more"
    return FailedError(f"{why}{again}")


def _bad(trial: Trial, kind: str, why: str) -> optuna.TrialPruned:
    """End a trial that failed because of its values, not the machine.

    It is reported to the sampler as a pruned trial that violates a constraint, which ranks below
    all others.
    """
    trial.set_user_attr("bad", kind)
    trial.set_constraint("can be ranked", 1.0)  # violated
    return optuna.TrialPruned(why)
