"""What a run folder holds: its result, or a file that is damaged and can be put aside."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.results import read_result
from isotrain.study.results import DAMAGE, run_of

STATES = ("running", "finished", "failed", "interrupted")  # status of a result.json
ASIDE = ".damaged"  # appended to the name of a file that is put aside


class Stored(NamedTuple):
    """The record of a run; empty where there is none, or where it is damaged."""

    result: dict[str, Any]
    damage: str = ""  # which file, and why it cannot be read

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end, with a result that can be tabulated."""
        return self.result.get("status") == "finished"


def stored(folder: Path) -> Stored:
    """The `result.json` of a run folder, judged; nothing is written.

    >>> stored(Path("nowhere"))
    Stored(result={}, damage='')
    """
    path = folder / "result.json"
    try:
        if not path.is_file():
            return Stored({})
        result = read_result(folder)
        if result["status"] not in STATES:
            raise ValueError(f"no status {result['status']!r}")
        if result["status"] == "finished":
            run_of(result, folder, "", "", 0)
    except DAMAGE as error:
        empty = path.is_file() and not path.stat().st_size
        reason = "it is empty" if empty else f"{type(error).__name__}: {error}"
        return Stored({}, f"{path} is damaged ({reason})")
    return Stored(result)


def put_aside(folder: Path) -> list[Path]:
    """Rename what a run with a damaged record cannot begin with; the new names.

    That is `result.json`, and the checkpoint that only goes with what the record said. A file that
    was put aside before is never replaced.
    """
    moved = []
    for name in ("result.json", "resume.ckpt"):
        path = folder / name
        if path.is_file():
            free = next(aside for k in count() if not (aside := _aside(path, k)).exists())
            moved.append(path.rename(free))
    return moved


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}{ASIDE}{number or ''}")
