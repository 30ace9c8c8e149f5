"""The environment of a run, its errors, and the lock on its folder."""

import errno
import hashlib
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from socket import gethostname
from typing import Any

from isotrain.console import UserError, say
from isotrain.runs.files import DamagedError
from isotrain.runs.locks import owner, sign, take, take_with_retries

PATIENCE_S = 2.0  # for a lock: `isotrain status` shares it for a moment when it looks
POLL_S = 0.2  # between two tries to take a lock that another process holds
STORAGE_ERRORS = (  # full, not writable, broken; taken away, or something else in its place
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ESTALE, errno.ELOOP),
)
LAUNCHER = "ISOTRAIN_LAUNCHER"  # in the environment of a run of a sweep: what launched it
HOST, JOB = "ISOTRAIN_HOST", "ISOTRAIN_JOB"  # likewise, of launchers with names of their own
PACKAGES = ("torch", "pytorch-lightning", "transformers", "datasets", "torchmetrics", "numpy")


STATE = ("describe", "--always", "--dirty", "--abbrev=12")
CHANGES = ("diff", "HEAD", "--binary", "--no-color", "--no-ext-diff")


class CannotRunError(UserError):
    """Parts are incompatible, or data or weights are missing; nothing was run."""


class StorageError(OSError):
    """The run folder can no longer be written to or read."""


def code_changes(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    """A note when a stored run was made by other code; empty otherwise."""
    keys = ("isotrain", "git")
    changed_keys = [k for k in keys if earlier.get("environment", {}).get(k) != now[k]]
    return f"; the code has changed since ({', '.join(changed_keys)})" if changed_keys else ""


def environment(threads: int) -> dict[str, Any]:
    """Versions, machine, code state and the number of threads, for the record."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "threads": threads,
        **code_state(),
    }


def placement() -> dict[str, str | None]:
    """Launcher, machine and job of this process, for the record."""
    getenv = os.environ.get
    array, task = getenv("SLURM_ARRAY_JOB_ID"), getenv("SLURM_ARRAY_TASK_ID")
    job = getenv(JOB) or (f"{array}_{task}" if array else getenv("SLURM_JOB_ID"))
    host = getenv(HOST) or getenv("SLURMD_NODENAME") or gethostname()
    return {"launcher": getenv(LAUNCHER), "host": host, "job": job}


def code_state() -> dict[str, str | None]:
    """Version and commit of this package: what may change the numbers of a run."""
    return {"isotrain": version("isotrain"), "git": _git_state()}


def check_writable(folder: Path) -> None:
    """Raise a PermissionError if a folder is read-only, or no folder."""
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise PermissionError(
            f"cannot write to {existing}; give another folder with output_dir=..."
        )


@contextmanager
def storage_failures(folder: Path) -> Iterator[None]:
    """Raise a StorageError, with the fix, for a damaged file or a storage error in the block."""
    try:
        yield
    except DamagedError as error:
        raise StorageError(
            f"{error.path} is damaged ({error.reason}); train anew with rerun=true"
        ) from error
    except OSError as error:
        if error.errno not in STORAGE_ERRORS:
            raise
        hint = "The last checkpoint is intact; " if (folder / "resume.ckpt").is_file() else ""
        path = error.filename2 or error.filename or folder  # the second is that to be replaced
        raise StorageError(
            f"{path}: {error.strerror}. {hint}make room, or put the folder back, make it "
            "writable, move away what is in place of a file, and give the same command again"
        ) from error


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Create the folder and lock it, after waiting for another process that holds the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = take_with_retries(path := folder / ".lock", PATIENCE_S)
    if lock is None:
        holder = owner(path)
        detail = f" ({holder.pid} on {holder.host})" if holder else ""
        say(f"{folder}: waiting for the process that runs it{detail}")
    while lock is None:
        time.sleep(POLL_S)
        lock = take(path)
    try:
        sign(lock)
        yield
    finally:
        os.close(lock)


def _git_state() -> str | None:
    """Commit of the checkout the package runs from, None without one.

    With changes that are not committed, `-dirty-` and eight digits that name them follow.
    """
    root = Path(__file__).resolve().parents[2]
    git = ["git", "-C", str(root)]
    if not (root / ".git").exists():
        return None
    try:
        state = subprocess.check_output([*git, *STATE], stderr=subprocess.DEVNULL).decode().strip()
        diff = subprocess.check_output([*git, *CHANGES], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{state}-{hashlib.sha256(diff).hexdigest()[:8]}" if diff else state
