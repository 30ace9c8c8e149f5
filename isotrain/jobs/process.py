"""A run as a process of its own: the one way to start `isotrain job`, and to stop it.

Studies, tuning and the jobs of a sweep start their runs here. Imports nothing heavy.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from isotrain.config.compose import RunJob, job_text, write_job
from isotrain.runs.secrets import redacted

COMMAND = (sys.executable, "-m", "isotrain", "job")
JOB, PARENT = "ISOTRAIN_JOB", "ISOTRAIN_PARENT"  # environment of a job: its text, and a watch
STARTED = "isotrain: started "  # the first line of each attempt in a log
POLL_S = 0.1  # between two looks at a process
LAST_LINES, TAIL_BYTES = 5, 65_536  # of a failed job's log: what is shown, what is looked at


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
        log: receives what the process prints, behind what earlier attempts left there and a line
            that begins with `STARTED`; None = where this process prints.
        command: what runs a job; the file is its last argument.
        environment: variables beside this process's own and `OMP_NUM_THREADS`, the job's threads.
        pass_fds: descriptors that it keeps open until it ends, such as that of a lock.
        ends_with_us: it stops with a checkpoint when this process ends, however that happens
            (`watch_parent`): its input is a pipe, to be closed (`with start_job(...)`) when it
            has ended. Otherwise it then goes on to its end.
    """
    given = own_environment()
    given.pop(JOB, None)
    given.pop(PARENT, None)
    if job.cfg.threads is not None:
        given["OMP_NUM_THREADS"] = str(job.cfg.threads)
    if ends_with_us:
        given[PARENT] = "1"
    if file is None:
        given[JOB] = job_text(job)
    else:
        write_job(job, file)
    stream = None if log is None else log.open("ab", buffering=0)
    try:
        if stream is not None:
            stream.write(f"{STARTED}{datetime.now():%Y-%m-%d %H:%M:%S}\n".encode())
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
        at_end_of_input(lambda: os.kill(os.getpid(), signal.SIGTERM))


def at_end_of_input(act: Callable[[], None]) -> None:
    """Call a function, in a thread, once the process that holds our input's other end has ended."""

    def wait() -> None:
        while os.read(0, 1024):  # unbuffered: a thread in a buffered read cannot be left at the end
            pass
        act()

    threading.Thread(target=wait, daemon=True).start()


def own_environment() -> dict[str, str]:
    """A copy of our environment, in which a process finds this very package from any folder."""
    root, given = str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, given]))}


def last_lines(log: Path) -> list[str]:
    """The last lines of the last attempt in a log that are not blank, without secrets.

    At most `LAST_LINES`; none where there is no log.
    """
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    begins = max((k for k, line in enumerate(lines, 1) if line.startswith(STARTED)), default=0)
    return [str(redacted(line)) for line in lines[begins:] if line.strip()][-LAST_LINES:]
