"""File locks that are released when the holding process ends, for any reason."""

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

from isotrain.console import launcher
from isotrain.runs.files import read_json

CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW


def take(path: Path) -> int | None:
    """A descriptor that holds the lock of a file until it is closed; None while another has it."""
    descriptor = os.open(path, CREATE, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def take_with_retries(path: Path, patience_s: float) -> int | None:
    """`take` with retries, as `is_locked` shares the lock for a moment."""
    deadline = time.monotonic() + patience_s
    while (lock := take(path)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return lock


class Owner(NamedTuple):
    """A process that holds a lock."""

    pid: int
    host: str  # its machine: a folder may be shared
    launch: str = ""  # `launch_id` of its ranks


def sign(lock: int) -> None:
    """Write this process and its machine into the file of a lock that it holds."""
    os.truncate(lock, 0)
    this_process = Owner(os.getpid(), gethostname(), launch_id())
    os.pwrite(lock, json.dumps(this_process._asdict()).encode(), 0)


def launch_id() -> str:
    """Id shared by the ranks of one torchrun or srun launch; empty without a launcher."""
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID")
    is_one = launcher() in ("torchrun", "srun")
    return " ".join(os.environ.get(name, "-") for name in names) if is_one else ""


def owner(path: Path) -> Owner | None:
    """The process that signed a lock and holds it; None where there is none."""
    with suppress(OSError, ValueError, LookupError, TypeError):  # just ended, or just begun
        if is_locked(path):
            signature = read_json(path)
            return Owner(int(signature["pid"]), str(signature["host"]), str(signature["launch"]))
    return None


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file; no file is created.

    The check itself shares the lock for some microseconds, so `take_with_retries` retries.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go when it is closed
    except BlockingIOError:
        return True
    return False
