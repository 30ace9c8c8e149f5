"""`result.json` of a run folder, read and replaced. Imports nothing heavy: studies read it too."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from isotrain.whole_files import replace_text

HIDDEN = "<redacted>"  # stands for a secret in whatever is recorded


def read_result(folder: Path) -> dict[str, Any]:
    """The `result.json` of a run folder; empty where there is none.

    A score that is null in the file is NaN: JSON has no number for it.

    >>> read_result(Path("nowhere"))
    {}
    """
    path = folder / "result.json"
    if not path.is_file():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "scores" in result:
        result["scores"] = nulls_as_nan(result["scores"])
    return result


def is_finished(folder: Path) -> bool:
    """Whether the run of a folder came to its end."""
    return read_result(folder).get("status") == "finished"


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file in one step, so that no half of it can be read."""
    replace_text(path, json.dumps(as_json(content), indent=2, allow_nan=False) + "\n")


def as_json(content: Any) -> Any:
    """The content with null for every number that is not finite, which JSON cannot write.

    >>> as_json({"loss": math.nan, "rows": [1, math.inf]})
    {'loss': None, 'rows': [1, None]}
    """
    if isinstance(content, dict):
        return {key: as_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [as_json(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def nulls_as_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Logged values as they are computed with: NaN for null.

    >>> nulls_as_nan({"step": 3, "loss": None})
    {'step': 3, 'loss': nan}
    """
    return {key: math.nan if value is None else value for key, value in values.items()}
