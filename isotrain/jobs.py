"""A run as a process of its own: the one way to start `isotrain job`, and to stop it.

Studies, tuning and the jobs of a sweep start their runs here. Imports nothing heavy.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from isotrain.config.compose import RunJob, job_text, write_job

COMMAND = (sys.executable, "-m", "isotrain", "job")
JOB, PARENT = "ISOTRAIN_JOB", "ISOTRAIN_PARENT"  # environment of a job: its text, and a watch
POLL_S = 0.1  # between two looks at a process


def start_job(
    job: RunJob,
    file: Path | None = None,
    log: Path | None = None,
    *,
    command: Sequence[str] = COMMAND,
    environment: Mapping[str, str] | None = None,
    pass_fds: Collection[int] = (),
    ends_with_us: bool = False,
) -> subprocess.Popen[bytes]:
    """The process of a job, at work, and the first of a process group of its own.

    Ctrl-C on a terminal does not reach it: who started it passes signals on (`stop_job`).

    Args:
        job: the run, and the arm that names its folder.
        file: where the job is written, and read by the process; None = it goes by the environment.
        log: receives what the process prints; None = where this process prints.
        command: what runs a job; the file is its last argument.
        environment: variables beside this process's own and `OMP_NUM_THREADS`, the job's threads.
        pass_fds: descriptors that it keeps open until it ends, such as that of a lock.
        ends_with_us: it stops with a checkpoint when this process ends, however that happens
            (`watch_parent`): its input is a pipe, to be closed (`with start_job(...)`) when it
            has ended. Otherwise it then goes on to its end.
    """
    given = dict(os.environ)
    given.pop(JOB, None)
    given.pop(PARENT, None)
    given["PYTHONPATH"] = _with_this_package(given.get("PYTHONPATH"))
    if job.cfg.threads is not None:
        given["OMP_NUM_THREADS"] = str(job.cfg.threads)
    if ends_with_us:
        given[PARENT] = "1"
    if file is None:
        given[JOB] = job_text(job)
    else:
        write_job(job, file)
    stream = None if log is None else log.open("wb")
    try:
        return subprocess.Popen(
            [*command, *([] if file is None else [str(file)])],
            stdin=subprocess.PIPE if ends_with_us else subprocess.DEVNULL,
            stdout=stream,
            stderr=None if stream is None else subprocess.STDOUT,
            env=given | dict(environment or {}),
            process_group=0,
            pass_fds=tuple(pass_fds),
        )
    finally:
        if stream is not None:
            stream.close()


def stop_job(process: subprocess.Popen[bytes], at_once: bool = False) -> None:
    """Ask a process of `start_job` to stop with a checkpoint, or end it and its ranks at once.

    SIGTERM to the process, or SIGKILL to its group; nothing where it has ended.
    """
    if process.poll() is not None:
        return
    if at_once:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.terminate()


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """The numbers of the stop signals received so far, in a list that grows; none ends us.

    Outside the main thread, where Python hears no signal, the list stays empty.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {
        number: signal.signal(number, lambda got, _frame: received.append(got))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch_parent() -> None:
    """In a job: stop with a checkpoint when the process that started it has ended.

    Where that process asked for it (`ends_with_us`); it holds the other end of our input.
    """
    if os.environ.pop(PARENT, ""):  # not for what this job starts
        threading.Thread(target=_stop_at_the_end_of_input, daemon=True).start()


def _stop_at_the_end_of_input() -> None:
    while os.read(0, 1024):  # unbuffered: a thread in a buffered read cannot be left at the end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _with_this_package(path: str | None) -> str:
    """A PYTHONPATH on which a process finds this very package, wherever it is started."""
    root = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, [root, path]))
