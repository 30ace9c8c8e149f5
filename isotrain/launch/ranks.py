"""Run several processes: a child is rank 0, and Lightning starts the others by its command line.

The child reads its configuration from the environment. So the ranks do not depend on what started
the run: a command, a sweep, or a worker without a command line. Imports nothing heavy.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

from omegaconf import DictConfig, OmegaConf

from isotrain.config.schema import RunConfig, n_processes
from isotrain.console import FAILED, REJECTED, guarded, launcher, spinner
from isotrain.launch.devices import unclaimed
from isotrain.runs.record import CannotRunError, StorageError
from isotrain.runs.secrets import redacted

RUN = "ISOTRAIN_RANKS"  # in the environment of ranks: the configuration and its overrides
ERROR = "ISOTRAIN_RANKS_ERROR"  # of rank 0: descriptor that takes the error's message
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class RanksError(RuntimeError):
    """The processes of a run failed; their output has the traceback."""


def needs_ranks(cfg: DictConfig) -> bool:
    """Whether a run has several processes that no launcher (torchrun, srun) has started."""
    return not launcher() and n_processes(cfg.trainer) > 1


def run_in_ranks(cfg: DictConfig, overrides: Sequence[str] = ()) -> None:
    """Train a run of several processes, and wait for its end.

    The ranks share this process's output. SIGTERM, SIGHUP and Ctrl-C are passed on to them. A null
    `cfg.threads` is set: results depend on it.

    Raises:
        CannotRunError: as of `run`.
        RanksError: the run failed.
        SystemExit: it was stopped by a signal; the code is 128 + its number.
    """
    if cfg.threads is None:
        cfg.threads = max(1, n_cores() // n_processes(cfg.trainer))
    with TemporaryFile("w+", encoding="utf-8") as message, _passed_on() as processes:
        descriptor = message.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "isotrain.launch.ranks"],
            stdin=subprocess.DEVNULL,
            stdout=_file_of(sys.stdout),
            stderr=_file_of(sys.stderr),
            env=_environment(cfg, overrides) | {ERROR: str(descriptor)},
            process_group=0,  # a Ctrl-C of the terminal reaches it once, from here
            pass_fds=(descriptor,),
        )
        processes.append(process)
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        message.seek(0)
        text = message.read()
    stop = -code if code < 0 else code - 128
    if stop in STOPS:
        raise SystemExit(128 + stop)
    if code == REJECTED:
        raise CannotRunError(text or "a rank cannot run; its output says why")
    if code:
        raise RanksError(text or f"the processes of the run ended with exit code {code}")


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _passed_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Pass stop signals on to the processes in the list; only in the main thread."""
    processes: list[subprocess.Popen[bytes]] = []
    if threading.current_thread() is not threading.main_thread():
        yield processes
        return

    def pass_on(number: int, _frame: Any) -> None:
        for process in processes:
            process.send_signal(number)
        if not processes:
            raise SystemExit(128 + number)

    signals = [number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, pass_on) for number in signals}
    try:
        yield processes
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _file_of(stream: TextIO) -> int | None:
    """The file descriptor of a stream, such as a worker's log; None if it has no file."""
    with suppress(OSError, ValueError, AttributeError):  # a stream in memory has none
        stream.flush()
        return stream.fileno()
    return None


def _environment(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, str]:
    """Environment of the ranks: ours, the run, and an import path with this package."""
    keys = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)  # secrets stay references
    root, python_path = str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")
    return {
        **unclaimed(),
        "PYTHONPATH": os.pathsep.join(filter(None, [root, python_path])),
        "OMP_NUM_THREADS": str(cfg.threads),
        RUN: json.dumps({"config": keys, "overrides": list(overrides)}),
    }


@guarded()
def _rank() -> int:
    """Run as a rank; the exit code."""
    payload = json.loads(os.environ[RUN])
    cfg = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.create(payload["config"]))
    assert isinstance(cfg, DictConfig)
    is_first = "LOCAL_RANK" not in os.environ  # Lightning starts the others with it
    with spinner("importing torch, Lightning and transformers"):
        from isotrain.pages.show import show_run
        from isotrain.runner import run
        from isotrain.training.callbacks.non_finite import NonFiniteError
        from isotrain.training.failures import LostRankError, MemoryLimitError
    try:
        run(cfg, payload["overrides"], show=show_run)
        return 0
    except KeyboardInterrupt:  # before training could listen, or the second one
        return 128 + signal.SIGINT
    except Exception as error:
        is_rejected = isinstance(error, CannotRunError | PermissionError)
        kinds = NonFiniteError | MemoryLimitError | LostRankError | StorageError
        is_known = is_rejected or isinstance(error, kinds)
        text = str(redacted(str(error) if is_known else f"{type(error).__name__}: {error}"))
        if is_first:
            with open(int(os.environ[ERROR]), "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
        if not is_known:
            raise
        return REJECTED if is_rejected else FAILED


if __name__ == "__main__":
    sys.exit(_rank())
