"""The missing runs of a study, one process each, n at a time."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from isotrain.console import duration, is_watched, say, spinner
from isotrain.jobs.devices import cuda_devices, device_for
from isotrain.jobs.locks import takes
from isotrain.jobs.process import COMMAND, POLL_S, last_lines, start_job, stop_job, stop_signals
from isotrain.reporting.report import write_report
from isotrain.study.definition import StudyError, load_study
from isotrain.study.identity import check_identity, write_identity
from isotrain.study.plan import Job, check_parts, plan_jobs, study_folder
from isotrain.study.progress import ENDED, is_owned, newest_step
from isotrain.study.stored import put_aside, stored

LOOK_S = 2.0  # between two looks at how far the runs are
PATIENCE_S = 1.0  # of waiting for a lock, before it is told


class Started(NamedTuple):
    """A process at work on a run."""

    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    at_s: float


def run_study(
    name_or_path: str,
    overrides: Sequence[str] = (),
    n_jobs: int = 1,
    command: Sequence[str] = COMMAND,
    config_dir: str | None = None,
    name: str | None = None,
) -> int:
    """0 when every run of the study is finished, 1 when one failed, 128 + signal when stopped.

    A finished run (`result.json` in its folder) is skipped; the others are started seed by seed, so
    that a study that is stopped can be compared, `n_jobs` at a time, each as `command <job file>`
    in a process of its own, and go on from their checkpoint; one whose `result.json` is damaged is
    done again, and that file is kept. A failure stops no other run. Where there are several CUDA
    devices, each of the runs at work has one of its own. SIGINT, SIGTERM and SIGHUP are passed on
    as SIGTERM, a second one as SIGKILL. Two calls for one study work one after the other, tables
    included, and a call waits for processes that a killed call has left behind. Under
    `<output_dir>/studies/<name>` stand `study.json` (what is computed), `jobs/`, `logs/` and, at
    the end, the tables.

    Raises:
        StudyError: a study or overrides that cannot run, nothing is written then; or a file that
            cannot be read now.
    """
    study = load_study(name_or_path, name)
    if n_jobs < 1:
        raise StudyError(f"n_jobs is the number of runs at a time, at least 1, got {n_jobs}")
    jobs = plan_jobs(study, overrides, config_dir)
    folder = study_folder(study, jobs)
    check_identity(study, jobs, folder, overrides)
    with spinner(f"study {study.name}: importing the parts of its runs"):
        check_parts(jobs)
    try:
        for part in ("jobs", "logs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"cannot write to {folder}; choose another output_dir=...") from error
    with (folder / "lock").open("a") as lock:
        with stop_signals() as received:
            _wait_for(
                lock,
                f"study {study.name}: waiting for the processes of another call to end",
                received,
            )
            with owned_tables(folder, study.name, received):
                if received:
                    return 128 + received[0]
                # Again: another call may have been here first.
                check_identity(study, jobs, folder, overrides)
                write_identity(study, jobs, folder, name_or_path, overrides)
            lock.truncate(0)
            print(n_jobs, file=lock, flush=True)  # for `status`
            missing = _unfinished(sorted(jobs, key=lambda job: study.seeds.index(job.seed)))
            say(
                f"study {study.name}: {len(jobs)} runs, {len(jobs) - len(missing)} finished "
                f"before, {len(missing)} to do, {n_jobs} at a time; {folder}"
            )
            with spinner(f"study {study.name}") as now:
                failed = _work(missing, folder, n_jobs, command, lock.fileno(), received, now)
        if received:
            say(f"stopped; the same command goes on with study {study.name}")
            return 128 + received[0]
        if any(stored(job.folder).is_finished for job in jobs):
            with owned_tables(folder, study.name):
                write_report(study, jobs, overrides)
    return 1 if failed else 0


@contextmanager
def owned_tables(folder: Path, name: str, received: Sequence[int] = ()) -> Iterator[None]:
    """While a block lasts, nobody else writes `study.json`, the tables and the page of a study.

    A second one waits, and says so. While runs are at work they are nobody's: what is finished can
    be tabulated.
    """
    with (folder / "report.lock").open("a") as lock:
        _wait_for(lock, f"study {name}: waiting for another call to write its tables", received)
        yield


def _unfinished(jobs: Sequence[Job]) -> list[Job]:
    """The runs to do, in order; what is damaged is told and put aside, so that they can begin.

    With `result.json` goes the checkpoint, which only goes with what the record said.
    """
    unfinished = []
    for job in jobs:
        found = stored(job.folder)
        if found.damage and not is_owned(job.folder):
            aside = put_aside(*(job.folder / name for name in ("result.json", "resume.ckpt")))
            kept = ", ".join(path.name for path in aside)
            say(f"{job.name}: {found.damage}; the run is done again, and it is kept as {kept}")
        if found.lack:
            say(f"{job.name}: {found.lack}; no table has it, and it is not trained again")
        if not found.is_finished:
            unfinished.append(job)
    return unfinished


def _work(
    jobs: Sequence[Job],
    folder: Path,
    n_jobs: int,
    command: Sequence[str],
    lock: int,
    received: Sequence[int],
    now: Callable[[str], None],
) -> int:
    """Run the jobs, and say on a terminal how far they are; the number that failed."""
    waiting, running, n_failed, n_told = list(jobs), list[Started](), 0, 0
    took_s, looked_at = list[float](), 0.0  # of each that finished
    devices = cuda_devices() if jobs else []
    try:
        while running or (waiting and not received):
            while waiting and len(running) < n_jobs and not received:
                job = waiting.pop(0)
                with device_for(job.of_pair, devices, side_by_side=n_jobs > 1) as (own, locks):
                    running.append(_start(job, folder, command, (lock, *locks), own))
            if is_watched() and time.monotonic() > looked_at + LOOK_S:
                looked_at = time.monotonic()
                now(_state(running, len(waiting), took_s, n_jobs, n_failed))
            for signal_number in received[n_told:]:
                n_told += 1
                say(f"{signal.Signals(signal_number).name}: stopping {len(running)} runs")
                for started in running:
                    stop_job(started.process, at_once=n_told > 1)
            for started in [s for s in running if s.process.poll() is not None]:
                running.remove(started)
                if _tell_end(started, len(took_s), len(jobs), bool(received)):
                    took_s.append(time.monotonic() - started.at_s)
                else:
                    n_failed += 1
                looked_at = 0.0
            time.sleep(POLL_S)
    finally:  # without an error there is nobody left
        for started in running:
            stop_job(started.process)
        for started in running:
            started.process.wait()
    return n_failed


def _start(
    job: Job,
    folder: Path,
    command: Sequence[str],
    locks: Sequence[int],
    environment: Mapping[str, str],
) -> Started:
    file, log = folder / "jobs" / f"{job.name}.json", folder / "logs" / f"{job.name}.log"
    with log.open("ab") as own:
        takes(own)  # for `status`: it is at work; not where one looks in this very moment
        process = start_job(
            job.as_run(),
            file,
            log,
            command=command,
            environment=environment,
            # Of the study, a device and the log, held until the last process has ended.
            pass_fds=(*locks, own.fileno()),
        )
    say(f"start {job.name}")
    return Started(job, process, log, time.monotonic())


def _state(
    running: Sequence[Started],
    n_waiting: int,
    took_s: Sequence[float],
    n_jobs: int,
    n_failed: int = 0,
) -> str:
    """How many runs finished, how long the rest takes by their mean, the step of each at work."""
    n = len(took_s) + n_failed + len(running) + n_waiting
    text = f"{len(took_s)} of {n} runs" + (f", {n_failed} failed" if n_failed else "")
    if took_s:
        mean = sum(took_s) / len(took_s)
        spent = sum(min(mean, time.monotonic() - started.at_s) for started in running)
        left = (mean * (n_waiting + len(running)) - spent) / min(
            n_jobs, n_waiting + len(running) or 1
        )
        text += f", about {duration(left)} left"
    steps = [(s.job.name, newest_step(s.job.folder / "metrics.jsonl")) for s in running]
    at = [name if step is None else f"{name} (step {step})" for name, step in steps]
    return f"{text}; {', '.join(at)}"


def _tell_end(started: Started, n_done: int, n: int, stopping: bool) -> bool:
    """Say how a process ended; whether its run is finished, whatever the process did afterwards.

    `n_done` of `n` runs have finished before.
    """
    job, code = started.job, started.process.returncode
    is_done = False
    try:
        is_done = stored(job.folder).is_finished
    except StudyError as error:  # the others go on
        say(f"{job.name}: {error}")
    seconds = time.monotonic() - started.at_s
    facts = f"{job.name} ({n_done + is_done} of {n} finished, {seconds:.0f} s)"
    if is_done:
        say(f"done {facts}" + (f", then exit code {code}; {started.log}" if code else ""))
        return True
    if stopping:
        say(f"stopped {facts}")
        return False
    say(f"failed {facts}, exit code {code}; {started.log} ends:")
    for line in last_lines(started.log):
        say(f"    {line}")
    with started.log.open("a", encoding="utf-8") as log:
        log.write(f"{ENDED}{code}\n")  # for `status`: a run that is refused leaves nothing else
    return False


def _wait_for(lock: IO[str], waiting: str, received: Sequence[int]) -> None:
    """Take the lock of an open file, or return at a stop signal; `waiting` is told once."""
    began_at, told = time.monotonic(), False
    while not received and not takes(lock):
        if not told and time.monotonic() > began_at + PATIENCE_S:  # who only looks is gone by then
            say(waiting)
            told = True
        time.sleep(POLL_S)
