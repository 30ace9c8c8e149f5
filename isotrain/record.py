"""What a run writes about itself: its result, the environment, and who owns the folder."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

CODE = ("isotrain", "git")  # of the environment: what may change the numbers of a run
PACKAGES = ("torch", "pytorch-lightning", "transformers", "datasets", "torchmetrics", "numpy")


def read_result(folder: Path) -> dict[str, Any]:
    """The `result.json` of a run folder; empty where there is none."""
    path = folder / "result.json"
    if not path.is_file():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file in one step, so that no half of it can be read."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)


def code_changes(earlier: dict[str, Any], now: dict[str, Any]) -> str:
    """A note when a stored run was made by other code; empty otherwise."""
    changed = [k for k in CODE if earlier.get("environment", {}).get(k) != now[k]]
    return f"; the code has changed since ({', '.join(changed)})" if changed else ""


def environment() -> dict[str, Any]:
    """Versions, machine and code state, for the record."""
    return {
        "python": platform.python_version(),
        "isotrain": version("isotrain"),
        **{name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "git": _git_state(),
    }


def check_writable(folder: Path) -> None:
    """Refuse a place where nothing can be written, before anything is read.

    Raises:
        PermissionError: the closest folder that exists is read-only; or something that is no
            folder stands in the way.
    """
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise PermissionError(f"cannot write to {existing}; give another place with output_dir=...")


@contextmanager
def owned(folder: Path, by_this_process: bool) -> Iterator[None]:
    """Make the folder and own it: a second process with the same run is refused.

    Raises:
        ValueError: another process is at this run.
    """
    if not by_this_process:  # the first process of this run owns it for all
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ValueError(
            f"another process is at this run ({folder}); wait for it, or stop it"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _git_state() -> str | None:
    """Commit of the checkout the package runs from, with `-dirty` for changes; else None."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
