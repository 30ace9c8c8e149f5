"""Run many jobs: `Pool(folder, n).run(jobs)`, n at a time, each in a separate process.

Studies, searches and sweeps are plans of jobs. A plan's folder has `lock` (held by the one
running call, with its process and its n), `jobs/` and `logs/`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from isotrain.console import REJECTED, is_watched, say, score_text, spinner
from isotrain.jobs.archive import Job
from isotrain.jobs.devices import cuda_devices, device_for
from isotrain.jobs.process import (
    Backend,
    last_lines,
    local,
    start_job,
    stop_job,
    stop_signals,
    warm_up,
)
from isotrain.jobs.progress import is_owned, newest_step
from isotrain.jobs.stored import PlanError, stored
from isotrain.runs.files import make_inside, put_aside
from isotrain.runs.locks import Owner, owner, sign, take

Checked = TypeVar("Checked")
POLL_S = 0.05  # polling interval of a process
WAIT_S = 0.2  # polling interval of another process's run
LOOK_S = 2.0  # polling interval of progress, and of signals that interrupted no wait
PATIENCE_S = 1.0  # of waiting for another process, before it is reported
STOPPED = {  # exit codes of a run that was asked to stop
    code for number in (signal.SIGINT, signal.SIGTERM) for code in (-number, 128 + number)
}
ENDED = "isotrain: exit code "  # the last line of a failed run's log


class End(NamedTuple):
    """How a job ended."""

    state: str  # finished | failed | stopped
    code: int | None = None  # of its process; None if none was started
    log: Path = Path()


class Pool:
    """Run jobs, `n` at a time; a context manager that one call per folder can hold.

    Finished runs are skipped, interrupted ones resume. A run with a damaged `result.json` is
    repeated, and that file is kept; a finished one with a changed file fails. If another process is
    training a run, the pool waits for it. A failure stops no other run. With several CUDA devices,
    each run gets its own. SIGINT, SIGTERM and SIGHUP are passed on as SIGTERM, a second one as
    SIGKILL. If this process is killed, its runs continue.

    Args:
        folder: of the plan; made.
        n: runs at a time.
        what: the plan in messages, such as "study smoke".
        backend: starts a process.

    Raises:
        PlanError: on entry: nothing can be written to the folder.
    """

    def __init__(self, folder: Path, n: int, what: str, backend: Backend = local) -> None:
        self.folder, self.n, self.what, self._backend = folder, n, what, backend
        self.received = list[int]()  # stop signals so far
        self._stack, self._mutex, self._devices = ExitStack(), threading.Lock(), list[str]()
        self._n_jobs, self._n_told, self._counts = 0, 0, Counter[str]()
        self._at_work = dict[str, Path]()
        self._new = list[Path]()  # folders created by this call, the innermost first

    def __enter__(self) -> Pool:
        self._new = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        try:
            make_inside(self.folder.absolute().parents[1], self.folder)
            for part in ("jobs", "logs"):
                (self.folder / part).mkdir(exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise PlanError(
                f"cannot write to {self.folder} ({reason}); choose another output_dir=..."
            ) from error
        with ExitStack() as stack:  # owned only once nothing can fail any more
            self.received = stack.enter_context(stop_signals())
            began_at, told = time.monotonic(), False
            while (lock := take(self.folder / "lock")) is None and not self.received:
                if not told and time.monotonic() > began_at + PATIENCE_S:
                    say(f"{self.what}: waiting for another call to end")
                    told = True
                time.sleep(POLL_S)
            if lock is not None:
                stack.callback(os.close, lock)
                sign(lock, self.n)
            self._devices = cuda_devices()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def check_parts(self, check: Callable[[], Checked]) -> Checked | None:
        """The result of `check`, which imports the parts of the runs; None after a stop signal.

        Folders created by this call are removed if `check` rejects the plan.
        """
        if self.received:
            return None
        try:
            with spinner(f"{self.what}: importing the parts of its runs"):
                found = check()
        except PlanError:
            if self.received:  # it interrupts the import too
                return None
            if self._new:
                (self.folder / "lock").unlink()
                with suppress(OSError):  # another process has written files there
                    for path in (self.folder / "jobs", self.folder / "logs", *self._new):
                        path.rmdir()
            raise
        return None if self.received else found

    def run(self, jobs: Sequence[Job]) -> int:
        """The number of unfinished jobs: failed or stopped."""
        left = [job for job in jobs if job.rerun or not stored(job.folder).is_finished]
        say(
            f"{self.what}: {len(jobs)} runs, {len(jobs) - len(left)} finished before, "
            f"{len(left)} to do, {self.n} at a time; {self.folder}"
        )
        self._n_jobs = len(left)
        if not left:
            return 0
        if self._backend is local:
            warm_up()
        with spinner(self.what) as now, ThreadPoolExecutor(self.n) as threads:
            ends = [threads.submit(self.one, job) for job in left]
            try:
                while wait(ends, LOOK_S, FIRST_EXCEPTION).not_done:
                    for end in ends:
                        if end.done():
                            end.result()
                    if is_watched():
                        now(self._state())
                return sum(end.result().state != "finished" for end in ends)
            except BaseException:  # nothing would monitor them any more
                self.received.append(signal.SIGTERM)
                raise

    def code(self, n_unfinished: int) -> int:
        """Exit code of the plan; reports a stop."""
        if self.received:
            say(f"{self.what}: stopped; the same command resumes")
            return 128 + self.received[0]
        return int(n_unfinished > 0)

    def one(self, job: Job, is_to_stop: Callable[[], bool] = lambda: False) -> End:
        """Start a job, unless it is finished, and monitor it to its end.

        `is_to_stop` is polled meanwhile; once it is true, the job stops with a checkpoint. A job
        that cannot be started, or whose record cannot be read, has failed; the others continue.
        """
        try:
            return self._one(job, is_to_stop)
        except (PlanError, OSError, EOFError) as error:  # EOFError: the warm server exited
            with self._mutex:
                self._counts["failed"] += 1
            say(f"failed {job.name}: {error or type(error).__name__}")
            return End("failed", log=self.folder / "logs" / f"{job.name}.log")

    def _one(self, job: Job, is_to_stop: Callable[[], bool]) -> End:
        began_at, told, log = time.monotonic(), False, self.folder / "logs" / f"{job.name}.log"
        while not self.received:
            if not job.rerun and stored(job.folder).is_finished:
                return End("finished", log=log)
            if is_owned(job.folder) or (lock := take(log)) is None:
                if not told and time.monotonic() > began_at + PATIENCE_S:
                    say(f"{job.name}: waiting for another process at {job.folder}")
                    told = True
                time.sleep(WAIT_S)
                continue
            try:
                end = self._followed(job, log, lock, is_to_stop)
            finally:
                os.close(lock)
            if end.state:
                return end
        return End("stopped", log=log)

    def _followed(self, job: Job, log: Path, lock: int, is_to_stop: Callable[[], bool]) -> End:
        """Start a job, wait for its end and report it; no state if another process was faster."""
        written_ns = _written_ns(job.folder)
        record = stored(job.folder)
        if record.damage and not record.is_changed:
            aside = put_aside(*(job.folder / name for name in ("result.json", "resume.ckpt")))
            kept = ", ".join(path.name for path in aside)
            say(f"{job.name}: {record.damage}; the run is done again, and it is kept as {kept}")
        run, file = job.as_run(), self.folder / "jobs" / f"{job.name}.json"
        with device_for(run.cfg, self._devices, self.n > 1) as (environment, locks):
            process = start_job(run, file, log, self._backend, environment, (lock, *locks))
        say(f"start {job.name}")
        self._at_work[job.name], began_at = job.folder, time.monotonic()
        n_passed_on, is_asked = 0, False
        try:
            while (code := process.poll()) is None:
                while n_passed_on < len(self.received):
                    n_passed_on += 1
                    self._tell_signal(n_passed_on)
                    stop_job(process, at_once=n_passed_on > 1)
                if not is_asked and (is_asked := is_to_stop()):
                    stop_job(process)
                time.sleep(POLL_S)
        finally:
            stop_job(process)  # it has ended unless there was an error
            del self._at_work[job.name]
        end = End("", code, log)
        if code == REJECTED and is_owned(job.folder):
            return end
        is_new = not job.rerun or _written_ns(job.folder) != written_ns
        return self._told(job, end, time.monotonic() - began_at, is_asked, is_new)

    def _told(self, job: Job, end: End, seconds: float, was_asked: bool, is_new: bool) -> End:
        """Report how a process ended; a run with a new result is finished however it ended."""
        was_asked = was_asked or bool(self.received) or end.code in STOPPED
        state = "stopped" if was_asked else "failed"
        result: dict[str, object] = {}
        try:
            found = stored(job.folder)
            state, result = ("finished" if found.is_finished and is_new else state), found.result
        except PlanError as error:  # the others continue
            say(f"{job.name}: {error}")
        with self._mutex:
            self._counts[state] += 1
            n_done = self._counts["finished"]
        of = f" of {self._n_jobs}" if self._n_jobs else ""
        line = f"{job.name} ({n_done}{of} finished, {seconds:.0f} s)"
        if state == "finished":
            scores, monitor = result.get("scores"), str(result.get("monitor"))
            score = scores.get(monitor) if isinstance(scores, dict) else None
            line += f", {monitor} {score_text(score)}" if score is not None else ""
            say(f"done {line}" + (f", then exit code {end.code}; {end.log}" if end.code else ""))
        elif state == "stopped":
            say(f"stopped {line}")
        else:
            say(f"failed {line}, exit code {end.code}; {end.log} ends:")
            for text in last_lines(end.log):
                say(f"    {text}")
            with end.log.open("a", encoding="utf-8") as log:
                log.write(f"{ENDED}{end.code}\n")  # for `status`: a rejected run leaves no record
        return end._replace(state=state)

    def _tell_signal(self, number: int) -> None:
        with self._mutex:
            if number > self._n_told:
                self._n_told = number
                again = "; once more ends them at once" if number == 1 else ""
                name = signal.Signals(self.received[number - 1]).name
                say(f"{name}: stopping {len(self._at_work)} runs{again}")

    def _state(self) -> str:
        """Number of finished runs, and the current step of each running one."""
        n_failed = self._counts["failed"]
        text = f"{self._counts['finished']} of {self._n_jobs} runs"
        text += f", {n_failed} failed" if n_failed else ""
        steps = [
            (name, newest_step(f / "metrics.jsonl")) for name, f in dict(self._at_work).items()
        ]
        at = [name if step is None else f"{name} (step {step})" for name, step in steps]
        return f"{text}; {', '.join(at)}"


def _written_ns(folder: Path) -> int | None:
    """Last write of the record of a run; None without one."""
    try:
        return (folder / "result.json").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def seconds_left(work_s: Sequence[float], n: int) -> float:
    """Estimated time of the remaining jobs, `n` at a time: at least that of the longest.

    >>> seconds_left([10.0, 10.0, 10.0], 2), seconds_left([30.0, 10.0], 2), seconds_left([], 2)
    (15.0, 30.0, 0.0)
    """
    return max([*work_s, sum(work_s) / n], default=0.0)


def call_at_work(folder: Path) -> Owner | None:
    """The running call in a plan's folder, if there is one.

    >>> call_at_work(Path("nowhere"))
    """
    return owner(folder / "lock")
