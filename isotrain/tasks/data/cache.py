"""Tokenised rows on disk: a second run of the same task, rows and tokenizer reads them back."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import warnings
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from isotrain.runs.files import replace_bytes
from isotrain.tasks.base import Task
from isotrain.tasks.data import encoding
from isotrain.types import Example, Row

FORMAT = 1  # of the files; another number reads none of the old ones
NO_PART = ("head_dropout", "left_out")  # attributes of a task that encode nothing
TOKENS = ("input_ids", "token_type_ids", "special_mask")

Arrays = dict[str, "np.ndarray[Any, Any]"]


def encode_cached(
    task: Task, rows: list[Row], tokenizer: Any, folder: Path | None
) -> list[Example]:
    """`task.encode(rows, tokenizer)`, from `folder` if it was computed before; None = no cache.

    A file that cannot be read or has a wrong checksum is computed again and replaced. A folder
    that cannot be written is a warning, never an error. Several processes may share a folder.
    What has no fingerprint (see there), and labels that are not all int or all float, are not
    cached.
    """
    if folder is None or not rows:
        return task.encode(rows, tokenizer)
    try:
        file = folder / f"{fingerprint(task, rows, tokenizer)}.safetensors"
    except (TypeError, OSError, AttributeError):
        return task.encode(rows, tokenizer)
    try:
        return _read(file)
    except (OSError, SafetensorError, ValueError, KeyError):  # absent, cut off, or changed
        examples = task.encode(rows, tokenizer)
    if {type(example.label) for example in examples} in ({int}, {float}):
        try:
            _write(file, examples)
        except OSError as error:
            warnings.warn(
                f"the token cache {folder} cannot be written ({error.strerror}); without it each "
                "run tokenises anew",
                stacklevel=2,
            )
    return examples


def fingerprint(task: Task, rows: list[Row], tokenizer: Any) -> str:
    """64 hex digits of everything that decides the examples, the same in every process.

    It covers the rows, the task's class, attributes (but `head_dropout`, which comes after the
    encoder, and counts of rows) and source text (with its base classes and `encoding`), and the
    tokenizer's whole content. Helpers that a task imports from elsewhere are not covered.

    Raises:
        TypeError, OSError, AttributeError: an attribute that is no JSON, a task without source
            text, a tokenizer that is not a fast one.
    """
    # Not part of the content: the tokenizer keeps the settings of its last call, and a row
    # where it came from.
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    del content["truncation"], content["padding"]
    attributes = {name: value for name, value in vars(task).items() if name not in NO_PART}
    modules = {kind.__module__: None for kind in type(task).__mro__ if kind is not object}
    parts = [
        FORMAT,
        [{name: value for name, value in row.items() if name != "at"} for row in rows],
        [type(task).__module__, type(task).__qualname__, attributes],
        [inspect.getsource(sys.modules[name]) for name in (*modules, encoding.__name__)],
        content,
        [tokenizer.pad_token_id, tokenizer.model_max_length, tokenizer.truncation_side],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read(file: Path) -> list[Example]:
    with safe_open(file, framework="np") as stored:
        arrays: Arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        if (stored.metadata() or {})["checksum"] != _checksum(arrays):
            raise ValueError(f"{file} is not what was written")
    spans = [
        ends and [list(zip(flat[::2], flat[1::2], strict=True)) for flat in ends]
        for ends in _unpack(arrays, "spans")
    ]
    fields = [*(_unpack(arrays, name) for name in TOKENS), spans]
    numbers = [arrays[name].tolist() for name in ("label", "index")]
    return [Example(*values) for values in zip(*fields, *numbers, strict=True)]


def _write(file: Path, examples: Sequence[Example]) -> None:
    arrays: Arrays = {
        "label": np.array([example.label for example in examples]),
        "index": np.array([example.index for example in examples]),
    }
    for name in TOKENS:
        arrays |= _pack(name, [getattr(example, name) for example in examples])
    spans: list[Any] = [
        e.spans and [list(chain.from_iterable(ends)) for ends in e.spans] for e in examples
    ]
    arrays |= _pack("spans", spans)
    content = save(arrays, {"checksum": _checksum(arrays)})
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(file, content)


def _pack(name: str, nested: Sequence[Any]) -> Arrays:
    """Lists of lists of numbers, some of them None, as three flat arrays."""
    present = [lists for lists in nested if lists is not None]
    flat = list(chain.from_iterable(present))
    return {
        f"{name}.counts": np.array([-1 if lists is None else len(lists) for lists in nested]),
        f"{name}.lengths": np.array([len(numbers) for numbers in flat], dtype=np.int64),
        f"{name}.values": np.array(list(chain.from_iterable(flat)), dtype=np.int32),
    }


def _unpack(arrays: Arrays, name: str) -> list[Any]:
    counts, lengths, values = (
        iter(arrays[f"{name}.{part}"].tolist()) for part in ("counts", "lengths", "values")
    )
    return [
        None if count < 0 else [list(islice(values, next(lengths))) for _ in range(count)]
        for count in counts
    ]


def _checksum(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
