"""Tokenised examples on disk: a second run of the same task, data and tokenizer reads them back."""

import hashlib
import inspect
import json
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

from isotrain.runs.files import replace_bytes
from isotrain.tasks.base import Task
from isotrain.tasks.data import encoding
from isotrain.types import Example, Row

NO_PART = (  # attributes of a task that do not affect encoding
    *("name", "data_set", "left_out", "finds_classes", "head_dropout", "scores", "monitor"),
    *("class_weights", "weight_C", "label_smoothing", "group", "numbers"),
)
FIELDS = [field.name for field in fields(Example)]


def encode_cached(
    task: Task, rows: list[Row], tokenizer: Any, folder: Path | None
) -> list[Example]:
    """`task.encode(rows, tokenizer)`, from `folder` if it was computed before; None = no cache.

    A file that is damaged (its checksum says so) is computed again and replaced. A folder that
    cannot be written is a warning, never an error. Several processes may share a folder. Without a
    fingerprint, or with labels that JSON does not know, nothing is cached.
    """
    if folder is None or not rows:
        return task.encode(rows, tokenizer)
    try:
        file = folder / f"{fingerprint(task, rows, tokenizer)}.json"
    except (TypeError, OSError, AttributeError):
        return task.encode(rows, tokenizer)
    try:
        return _read(file)
    except (OSError, ValueError):  # absent, cut off, or changed
        examples = task.encode(rows, tokenizer)
    try:
        _write(file, examples)
    except TypeError:  # a label such as a NumPy number
        pass
    except OSError as error:
        warnings.warn(
            f"the token cache {folder} cannot be written ({error.strerror or error}); without it "
            "each run tokenises anew",
            stacklevel=2,
        )
    return examples


def fingerprint(task: Task, rows: list[Row], tokenizer: Any) -> str:
    """64 hex digits of everything that decides the examples, the same in every process.

    It covers the rows, the task's class, attributes (but `NO_PART`) and source text (with its base
    classes and `encoding`), and the tokenizer's whole content. Helpers that a task imports from
    elsewhere are not covered.

    Raises:
        TypeError, OSError, AttributeError: an attribute that is no JSON, a task without source
            text, a tokenizer that is not a fast one.
    """
    # no part of the content: a tokenizer keeps the settings of its last call, a row its origin
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    del content["truncation"], content["padding"]
    attributes = {name: value for name, value in vars(task).items() if name not in NO_PART}
    modules = {base.__module__: None for base in type(task).__mro__ if base is not object}
    parts = [
        FIELDS,
        [{name: value for name, value in row.items() if name != "at"} for row in rows],
        [type(task).__module__, type(task).__qualname__, attributes],
        [inspect.getsource(sys.modules[name]) for name in (*modules, encoding.__name__)],
        [tokenizer.pad_token_id, tokenizer.model_max_length, tokenizer.truncation_side],
        [tokenizer.split_special_tokens, tokenizer.unk_token_id, content],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read(file: Path) -> list[Example]:
    checksum, _, content = file.read_bytes().partition(b"\n")
    if checksum != _checksum(content):
        raise ValueError(f"{file} is not what was written")
    return [
        Example(ids, types, specials, spans and [[(i, j) for i, j in s] for s in spans], *numbers)
        for ids, types, specials, spans, *numbers in json.loads(content)
    ]


def _write(file: Path, examples: list[Example]) -> None:
    """A line with the checksum, and one of JSON."""
    values = [[getattr(example, name) for name in FIELDS] for example in examples]
    content = json.dumps(values, separators=(",", ":")).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(file, _checksum(content) + b"\n" + content)


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
