"""`result.json` of a run folder, read and replaced. Imports nothing heavy: studies read it too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_result(folder: Path) -> dict[str, Any]:
    """The `result.json` of a run folder; empty where there is none.

    >>> read_result(Path("nowhere"))
    {}
    """
    path = folder / "result.json"
    if not path.is_file():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def is_finished(folder: Path) -> bool:
    """Whether the run of a folder came to its end."""
    return read_result(folder).get("status") == "finished"


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file in one step, so that no half of it can be read."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)
