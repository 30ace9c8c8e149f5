"""The scores that a run has logged so far, read while it trains."""

from __future__ import annotations

import json
import math
from pathlib import Path


def evaluations(file: Path, key: str) -> list[float]:
    """The values of a key at the evaluations after step 0, in order; NaN for what is not finite.

    The first is that of the first evaluation in training, so that trials whose steps differ
    compare at the same share of their training. A step that was evaluated twice (after a resume, or
    with selected weights) counts once, with its first value. A line that is being written is left.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:  # nothing is logged yet
        return []
    found: dict[int, float] = {}
    for line in text.splitlines(keepends=True):
        if f'"{key}"' in line and line.endswith("\n"):
            row = json.loads(line)
            if row["step"] > 0:
                found.setdefault(row["step"], math.nan if row[key] is None else row[key])
    return [found[step] for step in sorted(found)]
