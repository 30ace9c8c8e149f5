"""Checkpoint files: written in one step with a digest, which is compared before they are loaded."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn

from isotrain.runs.files import replacing
from isotrain.runs.shapes import DamagedError

DIGEST = 64  # bytes at the end: SHA-256 of those before, as hex digits


class _Hashed:
    """A file that is open for writing, and the digest of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write, sync, replace; `torch.load` reads the file, whose digest follows torch's archive.

    Raises:
        OSError: the storage fails; the older file is intact.
    """
    with replacing(path, by_one=True) as file:
        hashed = _Hashed(file)
        try:
            torch.save(state, hashed)  # type: ignore[arg-type]
        except RuntimeError as error:  # torch ends its archive, which fails too and is told instead
            raise error.__context__ or error from None
        file.write(hashed.digest.hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What `save_checkpoint` wrote, on the CPU; no pickle is trusted.

    Raises:
        DamagedError: there is no such file, or it is not as it was written.
    """
    if not path.is_file():
        raise DamagedError(path, "it is no file" if path.exists() else "it is gone")
    digest, left = hashlib.sha256(), path.stat().st_size - DIGEST
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, 2**20))):
            digest.update(chunk)
            left -= len(chunk)
        if file.read() != digest.hexdigest().encode():
            raise DamagedError(path, "its content is not what was written")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return state


def load_weights(part: nn.Module, path: Path, prefix: str) -> None:
    """Load a part of a run's module, whose weights have a prefix in the checkpoint.

    Raises:
        ValueError: the file is damaged, or its weights do not fit in name and shape.
    """
    state = load_checkpoint(path)["state_dict"]
    own = {k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)}
    try:
        part.load_state_dict(own)
    except RuntimeError as error:
        raise ValueError(
            f"{path} has no weights of this {type(part).__name__}; give a run of the same: {error}"
        ) from error
