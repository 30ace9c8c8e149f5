"""Locks on files, which end with the processes that hold them, however those end."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def takes(file: int | IO[Any]) -> bool:
    """Whether the lock of an open file, which no other has, is ours now, until it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take(path: Path) -> int | None:
    """A descriptor that holds the lock of a file until it is closed; None while another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if takes(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Wait for the lock of a file, and hold it while a block lasts."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file; none is made.

    The look itself shares the lock for some microseconds: who wants to own it tries for longer.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go when it is closed
    except BlockingIOError:
        return True
    except OSError:  # there is none yet
        return False
    return False
