"""The missing runs of a study, one process each, n at a time."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from isotrain.devices import cuda_devices, device_of
from isotrain.jobs import COMMAND, POLL_S, start_job, stop_job, stop_signals
from isotrain.pages.summary import say
from isotrain.progress import duration, is_watched, working
from isotrain.study.definition import StudyError, load_study
from isotrain.study.identity import check_identity, write_identity
from isotrain.study.plan import Job, plan_jobs, study_folder
from isotrain.study.progress import ENDED, is_owned, newest_step
from isotrain.study.report import write_report
from isotrain.study.stored import put_aside, stored

LOOK_S = 2.0  # between two looks at how far the runs are
LAST_LINES = 5  # of a failed run's log


class Started(NamedTuple):
    """A process at work on a run."""

    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    at_s: float
    slot: int = 0  # its place among those at work, which says its device


def run_study(
    name_or_path: str,
    overrides: Sequence[str] = (),
    n_jobs: int = 1,
    command: Sequence[str] = COMMAND,
    config_dir: str | None = None,
    name: str | None = None,
) -> int:
    """0 when every run of the study is finished, 1 when one failed, 128 + signal when stopped.

    A finished run (`result.json` in its folder) is skipped; the others are started in plan order,
    `n_jobs` at a time, each as `command <job file>` in a process of its own, and go on from their
    checkpoint; one whose `result.json` is damaged is done again, and that file is kept. A failure
    stops no other run. Where there are several CUDA devices, each of the runs at work has one of
    its own. SIGINT, SIGTERM and SIGHUP are passed on as SIGTERM, a second one as SIGKILL. Two
    calls for one study work one after the other, and a call waits for processes that a killed call
    has left behind. Under `<output_dir>/studies/<name>` stand `study.json` (what is computed),
    `jobs/`, `logs/` and, at the end, the tables.

    Raises:
        StudyError: a study or overrides that cannot run; nothing is written then.
    """
    if n_jobs < 1:
        raise StudyError(f"--jobs is the number of runs at a time, at least 1, got {n_jobs}")
    study = load_study(name_or_path, name)
    jobs = plan_jobs(study, overrides, config_dir)
    folder = study_folder(study, jobs)
    check_identity(study, jobs, folder)
    try:
        for part in ("jobs", "logs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"cannot write to {folder}; choose another output_dir=...") from error
    with stop_signals() as received, (folder / "lock").open("a") as lock:
        _wait_for(lock.fileno(), study.name, received)
        if received:
            return 128 + received[0]
        check_identity(study, jobs, folder)  # again: another call may have been here first
        write_identity(study, jobs, folder, name_or_path, overrides)
        missing = _unfinished(jobs)
        say(
            f"study {study.name}: {len(jobs)} runs, {len(jobs) - len(missing)} finished before, "
            f"{len(missing)} to do, {n_jobs} at a time; {folder}"
        )
        with working(f"study {study.name}") as now:
            failed = _work(missing, folder, n_jobs, command, lock.fileno(), received, now)
    if received:
        say(f"stopped; the same command goes on with study {study.name}")
        return 128 + received[0]
    if any(stored(job.folder).is_finished for job in jobs):
        write_report(study, jobs, overrides)
    return 1 if failed else 0


def _unfinished(jobs: Sequence[Job]) -> list[Job]:
    """The runs to do, in order; what is damaged is told and put aside, so that they can begin."""
    unfinished = []
    for job in jobs:
        found = stored(job.folder)
        if found.damage and not is_owned(job.folder):
            kept = ", ".join(path.name for path in put_aside(job.folder))
            say(f"{job.name}: {found.damage}; the run is done again, and it is kept as {kept}")
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
    took_s, looked_at = list[float](), 0.0
    devices = cuda_devices() if jobs and n_jobs > 1 else []
    try:
        while running or (waiting and not received):
            while waiting and len(running) < n_jobs and not received:
                slot = min(set(range(n_jobs)) - {started.slot for started in running})
                running.append(_start(waiting.pop(0), folder, command, lock, slot, devices))
            if is_watched() and time.monotonic() > looked_at + LOOK_S:
                looked_at = time.monotonic()
                now(_state(running, len(waiting), took_s, n_jobs))
            for signal_number in received[n_told:]:
                n_told += 1
                say(f"{signal.Signals(signal_number).name}: stopping {len(running)} runs")
                for started in running:
                    stop_job(started.process, at_once=n_told > 1)
            for started in [s for s in running if s.process.poll() is not None]:
                running.remove(started)
                took_s.append(time.monotonic() - started.at_s)
                n_failed += not _tell_end(started, f"{len(took_s)} of {len(jobs)}", bool(received))
                looked_at = 0.0
            time.sleep(POLL_S)
    finally:  # without an error there is nobody left
        for started in running:
            stop_job(started.process)
        for started in running:
            started.process.wait()
    return n_failed


def _start(
    job: Job, folder: Path, command: Sequence[str], lock: int, slot: int, devices: list[str]
) -> Started:
    file, log = folder / "jobs" / f"{job.name}.json", folder / "logs" / f"{job.name}.log"
    process = start_job(
        job.as_run(),
        file,
        log,
        command=command,
        environment=device_of(job.of_pair, slot, devices),
        pass_fds=(lock,),  # the lock is held until the last process has ended
    )
    say(f"start {job.name}")
    return Started(job, process, log, time.monotonic(), slot)


def _state(running: Sequence[Started], n_waiting: int, took_s: Sequence[float], n_jobs: int) -> str:
    """How many runs have ended, how long the rest takes by their mean, the step of each at work."""
    n = len(took_s) + len(running) + n_waiting
    text = f"{len(took_s)} of {n} runs"
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


def _tell_end(started: Started, count: str, stopping: bool) -> bool:
    """Say how a process ended; whether its run is finished."""
    job, code = started.job, started.process.returncode
    facts = f"{job.name} ({count}, {time.monotonic() - started.at_s:.0f} s)"
    if code == 0 and stored(job.folder).is_finished:
        say(f"done {facts}")
        return True
    if stopping:
        say(f"stopped {facts}")
        return False
    say(f"failed {facts}, exit code {code}; {started.log} ends:")
    text = started.log.read_text(encoding="utf-8", errors="replace")
    for line in [line for line in text.splitlines() if line.strip()][-LAST_LINES:]:
        say(f"    {line}")
    with started.log.open("a", encoding="utf-8") as log:
        log.write(f"{ENDED}{code}\n")  # for `status`: a run that is refused leaves nothing else
    return False


def _wait_for(lock: int, name: str, received: Sequence[int]) -> None:
    """Take the lock of the study, or return at a stop signal."""
    told = False
    while not received:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                say(f"study {name}: waiting for the processes of another call to end")
            told = True
            time.sleep(POLL_S)
