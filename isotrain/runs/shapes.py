"""Schemas of stored JSON objects, shared by all readers of records."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isfinite
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

REST = "..."  # of a mapping's keys
NUMBER, COUNT = float, range(2**63)
VALUE = (NUMBER, None)  # a number, or null where it was not finite
SHA256 = re.compile("[0-9a-f]{64}")
PART = {"_target_": re.compile(r"\w+(\.\w+)+")}
PARTS = {REST: dict}
PREDICTIONS = ("predictions/dev.csv", "predictions/test.csv")
DIGESTS = dict.fromkeys(("metrics.jsonl", *PREDICTIONS), SHA256)  # of a finished run's files
ENVIRONMENT = {REST: (str, NUMBER, None)}
RULES: Mapping[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    dict: "an object",
    list: "a list",
    None: "null",
    NUMBER: "a finite number",
    COUNT: "a whole number from 0",
    datetime: "a date",
}
STATES = ("running", "finished", "failed", "interrupted")
# fmt: off
CONFIG = {  # what is read of it
    "task": PART,
    "encoder": (PART, None), "isotropy": (PART, None), "peft": (PART, None),
    "freezing": (PART, None), "names": {REST: str},
    "objective": (PARTS, None), "metric": (PARTS, None), "logger": (PARTS, None),
    "trainer": {
        "max_epochs": (int, None), "max_steps": (int, None), "accumulate_grad_batches": COUNT,
        "devices": (COUNT, "auto", str, [COUNT]), "limit_train_batches": (NUMBER, None),
        "fast_dev_run": (bool, COUNT),
    },
    "data": {"batch_size": COUNT},
    "training": {"select": str, "reinit_blocks": COUNT},
    "monitor": {"map_rows": COUNT},
    "checkpoint": {"final": bool},
    "seed": COUNT, "threads": (COUNT, None), "rerun": bool, "site": [str],
}
RESULT = {  # of a run or an analysis
    "status": STATES, "error": str, "finished_at": datetime,
    "method": re.compile(r"[\w.+=-]+"), "seed": COUNT, "overrides": [str], "search": str,
    "config": CONFIG, "data": str,
    "environment": ENVIRONMENT, "earlier_environments": [ENVIRONMENT],
    "resumed_after_step": (COUNT, None), "init_from": (PARTS, dict, None), "phases": [dict],
    "n_parameters": {"total": COUNT, "trainable": COUNT},
    "n_rows": {"dev": COUNT, REST: COUNT}, "data_changes": dict,
    "lost_input": {REST: {"examples": COUNT, "lost": {REST: COUNT}, "left_out": {REST: COUNT}}},
    "limited_evaluation": {REST: {"scored": COUNT, "of": COUNT}},
    "label_majority": {REST: VALUE}, "classes": [str],
    "encoder": str, "width": COUNT, "is_causal": bool, "device": str, "n_processes": COUNT,
    "monitor": str, "mode": str, "headline": [str],
    "steps": COUNT, "scores": {REST: VALUE}, "timings_s": {"total": NUMBER, REST: NUMBER},
    "speed": {REST: str},
    "select": str, "selected_step": (COUNT, None), "n_candidates": COUNT,
    "stopped_by_patience": bool, "degenerate": bool, "degenerate_reason": str,
    "weights_sha256": (SHA256, None), "sha256": {REST: SHA256}, "analysis": str, "parts": [[str]],
}
# fmt: on
RECORD = {"step": COUNT, REST: VALUE}


class DamagedError(ValueError):
    """A stored file that has been changed or damaged; `reason` says where, and why."""

    fix = (
        "move that file away and run the same command again, with rerun=true if that run had "
        "finished"
    )

    def __init__(self, path: Path | str, reason: str | Exception) -> None:
        is_told = isinstance(reason, str) or type(reason) is ValueError
        self.path = Path(path)
        self.reason = str(reason) if is_told else f"{type(reason).__name__}: {reason}"
        super().__init__(f"{path} is damaged ({self.reason}); {self.fix}")


class ChangedError(DamagedError):
    """A file of a finished run that is not what its digest says; the run is left as it is."""

    fix = "put it back as it was, or train that run again with rerun=true"


class StoredObject(dict[str, Any]):
    """A JSON object of a file: a key that it lacks is named with the file."""

    def __init__(self, path: Path | str, pairs: Iterable[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise DamagedError(self.path, f"{key} is missing")


def parsed(text: bytes, path: Path | str, shape: Mapping[str, Any], *needed: str) -> StoredObject:
    """The JSON object of a file's bytes, of this shape and with these keys.

    Raises:
        DamagedError: it is none; the message says where, and what must be there.
    """
    try:
        if not text.strip():
            raise ValueError("it is empty")
        content = json.loads(text.decode())
        if b"\\ud" in text.lower():
            json.dumps(content, ensure_ascii=False).encode()  # fails for half a character
        if reason := misfit(content, shape):
            raise ValueError(reason)
    except RecursionError as error:
        raise DamagedError(path, "nested too deep") from error
    except UnicodeEncodeError as error:
        raise DamagedError(path, f"half a character, {error.object[error.start]!a}") from error
    except ValueError as error:
        raise DamagedError(path, error) from error
    found: StoredObject = _named(content, path)
    for key in needed:
        found[key]
    return found


def _named(content: Any, path: Path | str, deep: bool = True) -> Any:
    """Objects as `StoredObject`; those of a configuration stay as they are, for OmegaConf."""
    if isinstance(content, list):
        return [_named(value, path) for value in content] if deep else content
    if not isinstance(content, dict):
        return content
    if not deep:
        return StoredObject(path, content.items())
    plain = (float, int, str)  # most values
    own = {
        key: value if type(value) in plain else _named(value, path, key != "config")
        for key, value in content.items()
    }
    return StoredObject(path, own.items())


def misfit(content: Any, shape: Any, at: str = "") -> str:
    """Where a value is not of a shape, and what must be there; empty where it fits.

    A shape is a type, a text (itself), a range, a pattern, a tuple of alternatives, `[shape]`, or a
    mapping of keys to shapes, where `...` is for the keys that are not named. Keys may be missing.

    >>> misfit({"a": [1, "x"]}, {"a": [float], "b": str})
    "a.1 must be a finite number, got 'x'"
    """
    if isinstance(shape, list) and isinstance(content, list):
        own: Any = ((key, value, shape[0]) for key, value in enumerate(content))
    elif isinstance(shape, dict) and isinstance(content, dict):
        rest = shape.get(REST)
        own = (
            (key, value, shape.get(key, rest))
            for key, value in content.items()
            if rest is not VALUE or type(value) is not float or not isfinite(value) or key in shape
        )
    elif _fits(content, shape):
        return ""
    else:
        return f"{at.removesuffix('.') or 'it'} must be {_rule(shape)}, got {shortened(content)}"
    for key, value, one in own:
        if one and (reason := misfit(value, one, f"{at}{key}.")):
            return reason
    return ""


def _fits(content: Any, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return any(not misfit(content, one) for one in shape)
    if isinstance(content, bool):
        return shape is bool
    if isinstance(shape, re.Pattern):
        return isinstance(content, str) and shape.fullmatch(content) is not None
    if isinstance(shape, range):
        return isinstance(content, int) and content in shape
    if shape is NUMBER:
        return isinstance(content, int | float) and abs(content) <= sys.float_info.max
    if shape is datetime:
        try:
            return bool(datetime.fromisoformat(content))
        except (TypeError, ValueError):
            return False
    return isinstance(content, shape) if isinstance(shape, type) else bool(content == shape)


def _rule(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_rule, shape))
    if isinstance(shape, re.Pattern):
        return f"a text that fits {shape.pattern}"
    kind = type(shape) if isinstance(shape, list | dict) else shape
    return RULES.get(kind) or repr(shape)
