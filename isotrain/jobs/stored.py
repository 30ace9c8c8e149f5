"""What a run folder holds: its result, or a file that is damaged and can be put aside."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.runs.files import DamagedError, read_result

STATES = ("running", "finished", "failed", "interrupted")  # status of a result.json
ASIDE = ".damaged"  # appended to the name of a file that is put aside


class PlanError(ValueError):
    """A study, search or sweep that cannot run; the message has every mistake, one a line."""


class Stored(NamedTuple):
    """The record of a run; empty where there is none, or where it is damaged."""

    result: dict[str, Any]
    damage: str = ""  # which file, and why it is no record

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end: nobody trains it again."""
        return self.result.get("status") == "finished"


def stored(folder: Path) -> Stored:
    """The `result.json` of a run folder, judged; nothing is written.

    Raises:
        PlanError: the file is there and cannot be read now, which says nothing of what it holds.

    >>> stored(Path("nowhere"))
    Stored(result={}, damage='')
    """
    path = folder / "result.json"
    try:
        result = read_result(folder)
        if result.get("status") in STATES or not path.is_file():
            return Stored(result)
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except DamagedError as error:
        return Stored({}, str(error))
    return Stored({}, f"{path} is damaged (a record has a status, one of {', '.join(STATES)})")


def read_json(path: Path) -> Any:
    """What a JSON file has; None where there is no file.

    Raises:
        PlanError: it is there and cannot be read now.
        ValueError: it is no JSON.

    >>> read_json(Path("nowhere.json"))
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_be_read(path, error) from error


def cannot_be_read(path: Path, error: OSError) -> PlanError:
    """What is told of a file whose storage fails: it may be whole, and stays as it is."""
    return PlanError(
        f"{path} cannot be read now ({error.strerror or error}); it stays as it is, and the same "
        "command goes on when it can be read"
    )


def put_aside(*paths: Path) -> list[Path]:
    """Rename those of these files that are there; the new names.

    A file that was put aside before is never replaced.
    """
    moved = []
    for path in paths:
        if path.is_file():
            free = next(aside for k in count() if not (aside := _aside(path, k)).exists())
            moved.append(path.rename(free))
    return moved


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}{ASIDE}{number or ''}")
