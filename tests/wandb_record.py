"""What a run sent to W&B, read from the binary record that every run leaves on disk."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from wandb.proto.wandb_internal_pb2 import Record

BLOCK, HEAD = 32 * 1024, 7


def newest(folder: Path, kind: str = "*run-*", n: int = 1) -> Path:
    """The record of the last run that was closed below a run folder, once `n` of them are.

    W&B's own process writes it, and may still be at it for a moment.
    """
    until = time.monotonic() + 5
    while time.monotonic() < until:
        found = [path for path in folder.glob(f"wandb/{kind}/*.wandb") if exit_codes(path)]
        if len(found) >= n:
            return max(found, key=lambda path: path.stat().st_mtime_ns)
        time.sleep(0.02)
    raise AssertionError(f"{n} runs were to be closed in {folder}")


def records(path: Path, kind: str = "") -> Iterator[Message]:
    """The records of a file, or those of a kind: a LevelDB log of messages behind a header.

    Ends before a part that is not wholly written yet.
    """
    content, place, parts = path.read_bytes(), HEAD, []
    while place + HEAD <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEAD:
            place += left
            continue
        _crc, length, part = struct.unpack("<IHB", content[place : place + HEAD])
        if place + HEAD + length > len(content):
            return
        parts.append(content[place + HEAD : place + HEAD + length])
        place += HEAD + length
        if part in (1, 4):  # whole, or the last part of one
            record = Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            if not kind:
                yield record
            elif record.WhichOneof("record_type") == kind:
                yield getattr(record, kind)


def history(path: Path) -> list[dict[str, Any]]:
    """The logged rows; an object has a key for each part of its description."""
    return [items(record.item) for record in records(path, "history")]


def scalars(path: Path) -> list[dict[str, float]]:
    """The logged rows that hold no object: those of `metrics.jsonl`, in their order."""
    return [row for row in history(path) if not any(key.endswith("/_type") for key in row)]


def objects(path: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The descriptions of the objects of a kind (`histogram`, `image-file`, `table-file`, …).

    Of several with one key the last.
    """
    found = {}
    for row in history(path):
        for name, value in row.items():
            key = name.removesuffix("/_type")
            if key != name and value == kind:
                parts = {k.removeprefix(f"{key}/"): v for k, v in row.items() if k != key}
                found[key] = parts | {"step": row["trainer/global_step"]}
    return found


def summary(path: Path) -> dict[str, Any]:
    """What was put into the summary by name."""
    found: dict[str, Any] = {}
    for record in records(path, "summary"):
        found |= items(record.update)
    return found


def config(path: Path) -> dict[str, Any]:
    """The configuration, whole keys."""
    found: dict[str, Any] = {}
    for record in [run.config for run in records(path, "run")] + list(records(path, "config")):
        found |= items(record.update)
    return found


def run_of(path: Path) -> Message:
    """Group, job type, name, tags, id."""
    return next(records(path, "run"))


def exit_codes(path: Path) -> list[int]:
    """How the run was closed; one code, or none where its process was killed."""
    return [record.exit_code for record in records(path, "exit")]


def items(parts: Any) -> dict[str, Any]:
    """Key to value; a nested key has its parts joined by slashes."""
    return {"/".join(part.nested_key) or part.key: json.loads(part.value_json) for part in parts}
