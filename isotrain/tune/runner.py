"""The trials of a search, n at a time, until all have ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import optuna
from optuna.trial import TrialState

from isotrain.console import is_watched, launched, say, spinner
from isotrain.jobs.devices import cuda_devices
from isotrain.jobs.process import COMMAND, POLL_S, stop_signals
from isotrain.tune.confirm import best_trial
from isotrain.tune.definition import TuneError
from isotrain.tune.plan import Plan, runs_of
from isotrain.tune.report import ASKED, NAMES, write_report
from isotrain.tune.space import overrides_of
from isotrain.tune.storage import (
    enqueue_failed_points,
    n_tried,
    next_trial,
    opened,
    still_running,
)
from isotrain.tune.trial import LOOK_S, End, TrialAtWork

HOPELESS = 3  # failed trials, and no other, after which a call stops


def run_search(plan: Plan, n_jobs: int = 1, command: Sequence[str] = COMMAND) -> int:
    """0 when every trial has ended, 1 when one of this call failed, 128 + signal when stopped.

    Trials are taken from the storage one by one, `n_jobs` at a time, each run as `command <job
    file>` in a process of its own; several calls share the trials of one storage, and each returns
    when all have ended. A trial that a killed call has left is taken up again; a finished run is
    read, not trained again. A run that fails is tried once more, and its trial then told as failed,
    with the reason; a later call tries the point of a grid again. After `HOPELESS` failed trials
    and no other a call stops. SIGINT and SIGTERM are passed on as SIGTERM, a second one as
    SIGKILL.

    Raises:
        TuneError: a storage of another search, or one rank of several; no run is started then.
    """
    if n_jobs < 1:
        raise TuneError(f"n_jobs is the number of trials at a time, at least 1, got {n_jobs}")
    if launched():
        raise TuneError(
            "a launcher such as torchrun or srun started this for each rank, and each would try "
            "values of its own; start isotrain tune once, with trainer.devices=N"
        )
    with stop_signals() as received, opened(plan) as study:
        ended = n_tried(study.get_trials(deepcopy=False), plan)
        say(
            f"search {plan.search.name}: {plan.search.n_trials} trials, {ended} ended before, "
            f"{n_jobs} at a time; {plan.folder}"
        )
        study.set_user_attr(ASKED, plan.search.n_trials)
        if n_again := enqueue_failed_points(study, plan):
            say(f"points whose trial failed, tried again: {n_again}")
        call = _Call(plan, study, n_jobs, command, received)
        with spinner(f"search {plan.search.name}") as now:
            call.work(now)
        if received:
            say(f"stopped; the same command goes on with search {plan.search.name}")
            return 128 + received[0]
        if call.is_hopeless:
            say(
                f"stopped: all {call.n_failed} trials of this call failed; correct the cause, then "
                f"give the same command again{', with more --trials' * (not plan.is_grid)}"
            )
        write_report(plan, study)
        return 1 if call.n_failed or call.n_left else 0


@dataclass
class _Call:
    """What this process does of a search."""

    plan: Plan
    study: optuna.Study
    n_jobs: int
    command: Sequence[str]
    received: Sequence[int]  # stop signals
    at_work: list[TrialAtWork] = field(default_factory=list)
    devices: list[str] = field(default_factory=cuda_devices)
    n_good: int = 0
    n_failed: int = 0
    n_left: int = 0  # trials whose run was stopped from outside
    n_told: int = 0  # signals passed on
    look_at: float = 0.0  # for a trial, not before

    @property
    def goes_on(self) -> bool:
        """Whether more trials may start."""
        return not (self.received or self.n_left or self.is_hopeless)

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing has worked so far."""
        return self.n_failed >= HOPELESS and not self.n_good

    def work(self, now: Callable[[str], None]) -> None:
        """Take and end trials until none is left, or a signal comes."""
        is_waiting, shown_at = False, 0.0
        try:
            while True:
                self._fill()
                if not self.at_work:
                    if not self.goes_on or not still_running(self.study):
                        break
                    if not is_waiting:
                        say("waiting for trials of another call to end")
                    is_waiting = True
                self._pass_on()
                for trial in list(self.at_work):
                    if (end := trial.look(stopping=bool(self.received))) is not None:
                        self.at_work.remove(trial)
                        self._tell(trial, end)
                if is_watched() and time.monotonic() > shown_at + LOOK_S:
                    shown_at = time.monotonic()
                    now(self._state())
                time.sleep(POLL_S)
        finally:  # without an error there is nobody left
            for trial in self.at_work:
                trial.stop()
            for trial in self.at_work:
                trial.close()

    def _fill(self) -> None:
        """Take trials until enough are at work, or there is none for now."""
        while len(self.at_work) < self.n_jobs and self.goes_on and time.monotonic() > self.look_at:
            taken = next_trial(self.study, self.plan)
            if taken is None:
                self.look_at = time.monotonic() + LOOK_S
                return
            number, values = taken.trial.number, " ".join(overrides_of(taken.values))
            say(f"{'start' if taken.is_new else 'go on with'} trial {number}: {values}")
            jobs, mistakes = runs_of(self.plan, taken.values)
            trial = TrialAtWork(
                taken, jobs, self.plan, self.command, self.devices, side_by_side=self.n_jobs > 1
            )
            if mistakes:
                self._tell(trial, End(TrialState.FAIL, why=f"cannot run: {'; '.join(mistakes)}"))
            else:
                self.at_work.append(trial)

    def _pass_on(self) -> None:
        for number in self.received[self.n_told :]:
            self.n_told += 1
            say(f"{signal.Signals(number).name}: stopping {len(self.at_work)} trials")
            for trial in self.at_work:
                trial.stop(at_once=self.n_told > 1)

    def _tell(self, trial: TrialAtWork, end: End) -> None:
        """Tell the storage and the user how a trial ended, and give it back."""
        facts = trial.facts() | {"why": end.why, "bad": end.bad}
        if end.state is None:
            self.n_left += not self.received
            say(f"stopped trial {trial.number}{f': {end.why}' if end.why else ''}")
        else:
            for key, value in facts.items():
                trial.kept.set_user_attr(key, value)
            if end.bad and not trial.kept.constraints:  # a killed call may have got this far
                trial.kept.set_constraint("can be ranked", 1.0)  # broken
            self.study.tell(trial.kept, end.score, end.state)
            self.n_good += end.state != TrialState.FAIL
            self.n_failed += end.state == TrialState.FAIL
            score = "" if end.score is None else f"{self.plan.objective} {end.score:.4f}"
            say(f"{end.bad or NAMES[end.state]} trial {trial.number}: {score}{end.why}")
        trial.close()
        self.look_at = 0.0

    def _state(self) -> str:
        """How many trials have ended, the best so far, and what is at work."""
        trials = self.study.get_trials(deepcopy=False)
        text = f"{n_tried(trials, self.plan)} of {self.plan.search.n_trials} trials"
        if (best := best_trial(trials, self.plan)) is not None:
            text += f", best {best.value:.4f}"
        return "; ".join([text, *(trial.name for trial in self.at_work)])
