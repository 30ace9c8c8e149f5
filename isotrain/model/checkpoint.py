"""Checkpoint files: written atomically with a digest, which is verified before loading."""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from isotrain.runs.files import DamagedError, read_result, replacing, sync

DIGEST = 64  # bytes at the end: SHA-256 of the preceding bytes, as hex digits
CHUNK = 2**20  # bytes read at a time


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint atomically, followed by its SHA-256.

    The digest is of the bytes torch wrote, not read back from disk. `torch.load` reads the file.

    Raises:
        OSError: the storage fails; the older file is intact.
    """
    digest = hashlib.sha256()
    with replacing(path, by_one=True) as file:

        def write(data: bytes) -> int:
            digest.update(data)
            return file.write(data)

        try:
            torch.save(state, SimpleNamespace(write=write, flush=file.flush))
        except RuntimeError as error:  # closing torch's archive also fails and hides the cause
            raise error.__context__ or error from None
        file.write(digest.hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())
    with suppress(OSError):  # unsupported on some network file systems
        sync(path.parent)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint of `save_checkpoint` on the CPU; no pickle is trusted.

    Raises:
        DamagedError: the file is missing, was changed, or has no `state_dict`.
    """
    if not path.is_file():
        raise DamagedError(path, "it is no file" if path.exists() else "it is gone")
    digest, size = hashlib.sha256(), path.stat().st_size - DIGEST
    with path.open("rb") as file:
        for start in range(0, size, CHUNK):
            digest.update(file.read(min(CHUNK, size - start)))
    if stored_digest(path) != digest.hexdigest():
        raise DamagedError(path, "its content is not what was written")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except OSError:
        raise
    except Exception as error:  # torch and pickle raise many kinds, some advising to trust the file
        raise DamagedError(path, "torch cannot load it as plain tensors") from error
    if not (isinstance(state, dict) and isinstance(state.get("state_dict"), dict)):
        raise DamagedError(path, "it has no state_dict")
    return state


def stored_digest(path: Path) -> str:
    """The digest at the end of a checkpoint; a DamagedError if there is none."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - DIGEST))
        digest = file.read().decode(errors="replace")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise DamagedError(path, "it has no digest: it is of an earlier version, or was cut off")
    return digest


def load_weights(part: nn.Module, path: Path, prefix: str = "") -> None:
    """Load a module, or its part under a prefix, from the checkpoint of a finished run.

    Raises:
        ValueError: the file is damaged or belongs to another run, or names or shapes of weights do
            not match.
    """
    state = load_checkpoint(path)["state_dict"]
    if stored_digest(path) != read_result(path.parent).get("weights_sha256"):
        raise DamagedError(
            path, "it is of another run: result.json beside it has another digest, or none"
        )
    try:
        own = {k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)}
        part.load_state_dict(own)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} does not match this {type(part).__name__}; give a run with the same encoder: "
            f"{error}"
        ) from error
