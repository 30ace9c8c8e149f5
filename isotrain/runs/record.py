"""What a run records of its surroundings, and what it demands of its folder."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

PATIENCE_S = 2.0  # for a lock: `isotrain study status` shares it for a moment when it looks
STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)
PACKAGES = ("torch", "pytorch-lightning", "transformers", "datasets", "torchmetrics", "numpy")


class CannotRunError(ValueError):
    """Parts that do not fit together, or data or weights that are not there; nothing was run."""


class StorageError(OSError):
    """The run folder can no longer be written to."""


def code_changes(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    """A note when a stored run was made by other code; empty otherwise."""
    code = ("isotrain", "git")
    changed = [k for k in code if earlier.get("environment", {}).get(k) != now[k]]
    return f"; the code has changed since ({', '.join(changed)})" if changed else ""


def environment(threads: int) -> dict[str, Any]:
    """Versions, machine, code state and the number of threads, for the record."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "threads": threads,
        **code_state(),
    }


def code_state() -> dict[str, str | None]:
    """Version and commit of this package: what may change the numbers of a run."""
    return {"isotrain": version("isotrain"), "git": _git_state()}


def check_writable(folder: Path) -> None:
    """Refuse a place where nothing can be written, before anything is read.

    Raises:
        PermissionError: the closest folder that exists is read-only; or something that is no
            folder stands in the way.
    """
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise PermissionError(f"cannot write to {existing}; give another place with output_dir=...")


def storage_failure(error: OSError, folder: Path) -> str | None:
    """A sentence for an error of the storage itself; None for any other."""
    if error.errno not in STORAGE_ERRORS:
        return None
    intact = "The last checkpoint is intact; " if (folder / "resume.ckpt").is_file() else ""
    place = error.filename or folder
    return (
        f"{place}: {error.strerror}. {intact}make room, or make the folder writable, and give the "
        "same command again"
    )


@contextmanager
def owned(folder: Path, what: str = "run") -> Iterator[None]:
    """Make the folder and own it: a second process at the same run is refused, in 2 s.

    Raises:
        CannotRunError: another process is at this run, or this `what`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=PATIENCE_S, poll_interval=0.01)
    except Timeout as error:
        raise CannotRunError(
            f"another process is at this {what} ({folder}); wait for it, or stop it"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _git_state() -> str | None:
    """Commit of the checkout the package runs from, None without one.

    With changes that are not committed, `-dirty-` and eight digits that name them follow.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        state = _git(root, "describe", "--always", "--dirty", "--abbrev=12").decode().strip()
        if not state.endswith("-dirty"):
            return state
        diff = _git(root, "diff", "HEAD", "--binary", "--no-color", "--no-ext-diff")
        return f"{state}-{hashlib.sha256(diff).hexdigest()[:8]}"
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout
