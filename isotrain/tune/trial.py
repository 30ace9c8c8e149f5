"""One trial at work: its runs in turn, one a seed, each a process that may be pruned."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from optuna.trial import TrialState

from isotrain.config.compose import RunJob, run_folder
from isotrain.console import REJECTED, say
from isotrain.jobs.devices import device_for
from isotrain.jobs.locks import take
from isotrain.jobs.process import last_lines, start_job, stop_job
from isotrain.study.progress import is_owned
from isotrain.study.stored import put_aside, stored
from isotrain.tune.evaluations import evaluations
from isotrain.tune.plan import Plan
from isotrain.tune.storage import Taken

LOOK_S = 1.0  # between two looks at what a run has logged


class End(NamedTuple):
    """How a trial ended; without a state it is left to the next call.

    `bad` says what its values are bad for: a trial whose training left the numbers ("diverged") or
    whose predictions are all alike ("degenerate") is no failure of the machine. The sampler is told
    of it as of a pruned trial that breaks a constraint, which it takes for worse than any other.
    """

    state: TrialState | None
    score: float | None = None
    why: str = ""
    bad: str = ""


class TrialAtWork:
    """A trial of this process.

    Args:
        taken: the trial, and its lock.
        jobs: its runs, one a seed.
        plan: of the search.
        command: what runs a job.
        devices: the CUDA devices that its processes may use.
        side_by_side: whether other trials are at work with it.
    """

    def __init__(
        self,
        taken: Taken,
        jobs: Sequence[RunJob],
        plan: Plan,
        command: Sequence[str],
        devices: Sequence[str],
        side_by_side: bool,
    ) -> None:
        self.kept, self.number = taken.trial, taken.trial.number
        self.scores: list[float] = []  # of the runs that are finished
        self._trial_lock, self._jobs, self._plan = taken.lock, jobs, plan
        self._folders = [run_folder(job.cfg, job.arm) for job in jobs]
        self._command, self._devices, self._side_by_side = command, devices, side_by_side
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None  # of the run, held by its process too
        self._log = Path()
        self._pruned = ""
        self._looked_at = 0.0
        self._told: set[str] = set()  # said once

    @property
    def name(self) -> str:
        """`trial-<number>-seed<k>` of the run it is at, the name of its job and its log."""
        seed = self._plan.search.seeds[min(len(self.scores), len(self._jobs) - 1)]
        return f"trial-{self.number}-seed{seed}"

    @property
    def folder(self) -> Path:
        """Of the run it is at."""
        return self._folders[min(len(self.scores), len(self._jobs) - 1)]

    def look(self, stopping: bool) -> End | None:
        """Take the next step that is due; the end of the trial once there is one."""
        if self._process is None:
            if stored(self.folder).is_finished:
                return self._scored()
            if stopping:
                return End(None)
            self._start()
            return None
        if self._process.poll() is None:
            self._watch()
            return None
        code = self._process.returncode
        self._end_process()
        if code == 0 and stored(self.folder).is_finished:
            return self._scored()
        if stopping:
            return End(None)
        if self._pruned:
            return End(TrialState.PRUNED, why=self._pruned)
        if code in (-signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT):
            return End(None, why=f"{self.name} was stopped from outside")
        return self._failed(code)

    def stop(self, at_once: bool = False) -> None:
        """Ask the run to stop with a checkpoint, or end it."""
        if self._process is not None:
            stop_job(self._process, at_once)

    def close(self) -> None:
        """Wait for the process, and give the trial back."""
        if self._process is not None:
            self._process.wait()
            self._end_process()
        os.close(self._trial_lock)

    def facts(self) -> dict[str, Any]:
        """What the storage keeps of a trial beside its values and its score."""
        results = [stored(folder).result for folder in self._folders]
        code = [r["environment"] for r in results if "environment" in r]
        return {
            "scores": self.scores,
            "code": sorted({str(c.get("git") or c.get("isotrain")) for c in code}),
        }

    def _start(self) -> None:
        """Start the next run, unless another process is still at it."""
        self._lock = take(self._plan.folder / "locks" / self.folder.name)
        if self._lock is None:
            return
        if is_owned(self.folder):  # by a command that is no search
            os.close(self._lock)
            self._lock = None
            self._say_once(f"{self.name}: waiting for another process at {self.folder}")
            return
        if damage := stored(self.folder).damage:
            aside = put_aside(*(self.folder / name for name in ("result.json", "resume.ckpt")))
            kept = ", ".join(path.name for path in aside)
            say(f"{self.name}: {damage}; the run is done again, and it is kept as {kept}")
        job = self._jobs[len(self.scores)]
        self._log = self._plan.folder / "logs" / f"{self.name}.log"
        with device_for(job.cfg, self._devices, self._side_by_side) as (environment, locks):
            self._process = start_job(
                job,
                self._plan.folder / "jobs" / f"{self.name}.json",
                self._log,
                command=self._command,
                environment=environment,
                pass_fds=(self._lock, *locks),
                ends_with_us=True,  # nobody else would prune it
            )

    def _end_process(self) -> None:
        assert self._process is not None
        assert self._lock is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        os.close(self._lock)
        self._process = self._lock = None

    def _watch(self) -> None:
        """Stop the first run if the pruner says so.

        A finished trial is judged by all its seeds, an unpromising one by the first.
        """
        if self._pruned or self.scores or time.monotonic() < self._looked_at + LOOK_S:
            return
        self._looked_at = time.monotonic()
        highest = self._plan.direction == "max"
        for number, best in self._report():
            if self.kept.should_prune():
                side = "below" if highest else "above"
                self._pruned = f"{side} the median at evaluation {number}: {best:.4g} at best"
                self.stop()
                return

    def _report(self) -> Iterator[tuple[int, float]]:
        """Report the evaluations of the run that the storage lacks, one by one.

        Yields the number of each and the best value so far, by which the pruner judges.
        """
        known = self.kept.study.get_trials(deepcopy=False)[self.number].intermediate_values
        found = evaluations(self.folder / "metrics.jsonl", self._plan.objective)
        better, best = (max if self._plan.direction == "max" else min), math.nan
        for number, value in enumerate(found, start=1):
            if not math.isfinite(value):
                continue
            best = value if math.isnan(best) else better(best, value)
            if number not in known:
                self.kept.report(value, number)
                yield number, best

    def _scored(self) -> End | None:
        """The score of a finished run; the end of the trial with its last run, or a bad one."""
        (result, _, lack), key = stored(self.folder), self._plan.objective
        if lack:
            return End(TrialState.FAIL, why=f"{self.name}: {lack}")
        score = result["scores"].get(key)
        if score is None:
            there = ", ".join(k for k in result["scores"] if k.startswith("val/"))
            return End(TrialState.FAIL, why=f"{self.name} has no {key}; it has {there}")
        if not math.isfinite(score):
            return _bad("diverged", f"{key} of {self.name} is not finite")
        if reason := result.get("degenerate_reason"):
            return _bad("degenerate", f"{self.name}: {reason}")
        if not self.scores:
            list(self._report())  # others are compared with its whole curve
        self.scores.append(score)
        if len(self.scores) < len(self._jobs):
            return None
        return End(TrialState.COMPLETE, math.fsum(self.scores) / len(self.scores))

    def _failed(self, code: int) -> End | None:
        """The end of a trial whose run failed; None where it is tried once more.

        That is: the first time, unless it cannot run, or its training left the numbers.
        """
        lines = last_lines(self._log)
        say(f"{self.name}: exit code {code}; {self._log} ends:")
        for line in lines:
            say(f"    {line}")
        why = f"{self.name}: exit code {code}{f'; {lines[-1].strip()}' if lines else ''}"
        if code == REJECTED:  # it would not run the next time
            return End(TrialState.FAIL, why=why)
        if str(stored(self.folder).result.get("error", "")).startswith("NonFiniteError"):
            return _bad("diverged", why)
        if self._say_once(f"{self.name} is tried once more"):
            return None
        return End(TrialState.FAIL, why=f"{why}; also when it was tried once more")

    def _say_once(self, text: str) -> bool:
        """Whether this trial had not said so before."""
        is_new = text not in self._told
        if is_new:
            say(text)
        self._told.add(text)
        return is_new


def _bad(kind: str, why: str) -> End:
    return End(TrialState.PRUNED, why=why, bad=kind)
