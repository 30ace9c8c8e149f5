"""Run a job in a separate process: forked from a warm server, or a fresh interpreter.

A backend starts it: `local` here; a cluster provides another. Imports nothing heavy.
"""

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from multiprocessing import forkserver, get_context, reduction, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Protocol

from isotrain.config.compose import RunJob, write_job
from isotrain.config.schema import number_asked_for
from isotrain.runs.secrets import redacted

COMMAND = (sys.executable, "-m", "isotrain", "run")  # followed by a job's file
JOB = "ISOTRAIN_JOB"  # in the environment of each job: its file, or its text without one
STARTED = "isotrain: started "  # the first line of each attempt in a log
LAST_LINES, TAIL_BYTES = 5, 65_536  # of a failed job's log: shown, read
WORKER = "isotrain.commands.worker"
# By the warm server: what every run imports, and what most runs import late. Not `datasets`: its
# pyarrow starts a thread when it is imported.
PRELOADED = [
    *(WORKER, "isotrain.run", "transformers.models.bert.modeling_bert", "transformers.optimization")
]
OF_SERVER = {  # environment of its imports: no thread pool, GPUs detected without CUDA
    **{name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_server = get_context("forkserver")
_lock = threading.RLock()  # multiprocessing polls all its children whenever one starts
LOST = 255  # exit code of multiprocessing if its server was killed


class Process(Protocol):
    """A running job."""

    @property
    def pid(self) -> int:
        """Its process id, which is also its process group id."""

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""


# Starts a job, given its file and log, its environment, and descriptors to keep open.
Backend = Callable[[RunJob, Path, Path, Mapping[str, str], Sequence[int]], Process]


def local(
    job: RunJob, file: Path, log: Path, environment: Mapping[str, str], locks: Sequence[int]
) -> Process:
    """A process on this machine: a warm worker, or a fresh one if the run starts ranks."""
    if number_asked_for(job.cfg.trainer.get("devices", 1)) == 1:
        with suppress(EOFError, ConnectionError):  # the server was killed; the next job starts one
            return _Worker(file, log, environment, locks)
    return fresh(COMMAND)(job, file, log, environment, locks)


def fresh(command: Sequence[str]) -> Backend:
    """A backend that starts `command FILE`."""

    def start(
        job: RunJob, file: Path, log: Path, environment: Mapping[str, str], locks: Sequence[int]
    ) -> Process:
        with log.open("ab", buffering=0) as stream:
            return subprocess.Popen(
                [*command, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**environment, JOB: str(file)},
                process_group=0,
                pass_fds=tuple(locks),
            )

    return start


def start_job(
    job: RunJob,
    file: Path,
    log: Path,
    backend: Backend = local,
    environment: Mapping[str, str] | None = None,
    locks: Sequence[int] = (),
) -> Process:
    """Start the process of a job, as the leader of a new process group.

    Ctrl-C on a terminal does not reach it: the parent passes signals on (`stop_job`). It keeps
    running if the parent is killed.

    Args:
        job: the run.
        file: the job file, written here and read by the process.
        log: its output is appended, after a line that begins with `STARTED`.
        backend: starts it.
        environment: variables in addition to ours and `OMP_NUM_THREADS`, the job's threads.
        locks: descriptors that it holds open until it ends.
    """
    with _lock:  # starting a server changes ours for a moment
        given = own_environment()
    given.pop(JOB, None)
    if job.cfg.threads is not None:
        given["OMP_NUM_THREADS"] = str(job.cfg.threads)
    write_job(job, file)
    with log.open("ab") as stream:
        stream.write(f"{STARTED}{datetime.now():%Y-%m-%d %H:%M:%S}\n".encode())
    return backend(job, file, log, given | dict(environment or {}), locks)


def stop_job(process: Process, at_once: bool = False) -> None:
    """Ask a process of `start_job` to stop with a checkpoint, or end it and its ranks at once.

    SIGTERM to the process, or SIGKILL to its group; no effect if it has ended.
    """
    if process.poll() is None:
        try:
            if at_once:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                os.kill(process.pid, signal.SIGTERM)
        except ProcessLookupError:  # it has just ended or has no group yet
            pass


def warm_up() -> None:
    """Start the server that workers are forked from, if none runs; it imports in the background.

    It has one thread, as others would not survive a fork, and ignores signals of its terminal.
    """
    with _lock:
        _server.set_forkserver_preload(PRELOADED)
        before = dict(os.environ)
        os.environ |= own_environment() | OF_SERVER
        resource_tracker.ensure_running()  # which unblocks signals again
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for name in (*OF_SERVER, "PYTHONPATH"):
                os.environ.pop(name)
            os.environ |= before


class _Worker:
    """A process forked from the server; it survives if the server is killed."""

    def __init__(
        self, file: Path, log: Path, environment: Mapping[str, str], locks: Sequence[int]
    ) -> None:
        self._alive, own = os.pipe()  # closes when the process ends
        try:
            with _lock, log.open("ab", buffering=0) as stream:
                warm_up()
                self._process = _Forked(file, environment, (stream.fileno(), own, *locks))
                program = sys.modules["__main__"]
                sys.modules["__main__"] = ModuleType("__main__")  # a worker would import the script
                try:
                    self._process.start()
                finally:
                    sys.modules["__main__"] = program
        finally:
            os.close(own)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        with _lock:
            code = self._process.exitcode
        return None if code == LOST and not wait([self._alive], 0) else code

    def __del__(self) -> None:
        os.close(self._alive)


class _Forked(ForkServerProcess):
    """Run a job's file, with the descriptors of its parent process."""

    def __init__(
        self, file: Path, environment: Mapping[str, str], descriptors: Sequence[int]
    ) -> None:
        super().__init__(daemon=False)
        self._file, self._environment, self._own = file, dict(environment), tuple(descriptors)

    def __getstate__(self) -> dict[str, object]:
        """State sent to the server when this process starts; descriptors are sent separately."""
        own = tuple(map(reduction.DupFd, self._own))
        return {**self.__dict__, "_own": own}

    def run(self) -> None:
        """Executed in the worker."""
        os.setpgid(0, 0)
        log, *_ = (descriptor.detach() for descriptor in self._own)  # type: ignore[attr-defined]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.environ.clear()
        os.environ |= self._environment
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        try:
            sys.exit(import_module(WORKER).run_file(self._file))
        finally:
            atexit._run_exitfuncs()  # an interpreter does so at exit; a fork does not


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect stop signals in a growing list, without ending this process.

    Outside the main thread, where Python receives no signals, the list stays empty.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {
        number: signal.signal(number, lambda got, _frame: received.append(got))
        for number in STOP_SIGNALS
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def own_environment() -> dict[str, str]:
    """A copy of our environment in which this package is importable from any folder."""
    root, given = str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, given]))}


def last_lines(log: Path) -> list[str]:
    """The last non-blank lines of the last attempt in a log, without secrets.

    At most `LAST_LINES`; none without a log.
    """
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    begins = max((k for k, line in enumerate(lines, 1) if line.startswith(STARTED)), default=0)
    return [str(redacted(line)) for line in lines[begins:] if line.strip()][-LAST_LINES:]
