"""Weights and checkpoints of a run: written atomically, verified by SHA-256 before loading."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from isotrain.runs.files import DamagedError, read_result, replacing, sha256_of, sync

DIGEST = 64  # bytes at the end of a checkpoint: SHA-256 of the preceding bytes, as hex digits
CHUNK = 2**20  # bytes read at a time


def save_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Write a state dict as safetensors, atomically; shared and strided tensors as copies.

    Raises:
        OSError: the storage fails; the older file is intact.
    """
    tensors = {name: x.detach().cpu().contiguous().clone() for name, x in state.items()}
    with _durable(path) as file:
        file.write(save(tensors))  # `save_file` leaves a file of its own when it is killed


def load_weights(part: nn.Module, path: Path, prefix: str = "") -> None:
    """Load a module, or its part under a prefix, from the weights of a finished run.

    Raises:
        ValueError: the file is damaged or belongs to another run, or names or shapes of weights do
            not match.
    """
    if sha256_of(path) != read_result(path.parent).get("weights_sha256"):
        raise DamagedError(
            path, "its SHA-256 is not that in result.json beside it, or there is none"
        )
    try:
        state = load_file(path)
        part_state = {k.removeprefix(prefix): x for k, x in state.items() if k.startswith(prefix)}
        part.load_state_dict(part_state)
    except SafetensorError as error:
        raise DamagedError(path, str(error)) from error
    except RuntimeError as error:
        raise ValueError(
            f"{path} does not match this {type(part).__name__}; give a run with the same encoder: "
            f"{error}"
        ) from error


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint atomically, followed by its SHA-256.

    The digest is of the bytes torch wrote, not read back from disk. `torch.load` reads the file.

    Raises:
        OSError: the storage fails; the older file is intact.
    """
    digest = hashlib.sha256()
    with _durable(path) as file:

        def write(data: bytes) -> int:
            digest.update(data)
            return file.write(data)

        try:
            torch.save(state, SimpleNamespace(write=write, flush=file.flush))
        except RuntimeError as error:  # closing torch's archive also fails and hides the cause
            raise error.__context__ or error from None
        file.write(digest.hexdigest().encode())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint of `save_checkpoint` on the CPU; no pickle is trusted.

    Raises:
        DamagedError: the file is missing or was changed, or torch cannot load it.
    """
    if not path.is_file():
        raise DamagedError(path, "it is no file" if path.exists() else "it is gone")
    digest, size = hashlib.sha256(), path.stat().st_size - DIGEST
    with path.open("rb") as file:
        for start in range(0, size, CHUNK):
            digest.update(file.read(min(CHUNK, size - start)))
        file.seek(max(0, size))
        stored_digest = file.read().decode(errors="replace")
    if stored_digest != digest.hexdigest():
        raise DamagedError(path, "its content is not what was written")
    try:
        state: dict[str, Any] = torch.load(path, "cpu", weights_only=True, mmap=True)
    except OSError:
        raise
    except Exception as error:  # torch and pickle raise many kinds, some advising to trust the file
        raise DamagedError(path, "torch cannot load it as plain tensors") from error
    return state


@contextmanager
def _durable(path: Path) -> Iterator[BinaryIO]:
    """As `replacing`, and the file survives a power cut."""
    with replacing(path, by_one=True) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    with suppress(OSError):  # unsupported on some network file systems
        sync(path.parent)
