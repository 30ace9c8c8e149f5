"""What folders hold: the result of a run, the command that gave a plan, or a damaged file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.runs.files import DamagedError, read_result

STATES = ("running", "finished", "failed", "interrupted")  # status of a result.json
STUDY, SEARCH, SWEEP = "study.json", "search.json", "sweep.json"  # of a plan's folder
DATABASE = "study.db"  # there: the trials of a search
COPY = "plan.yaml"  # there: of the file of a study or search, for when that is gone
TYPES: dict[str, type | tuple[type, ...]] = {
    **{"file": str, "name": str, "overrides": list, "config_dir": (str, type(None))},
    **{"n_trials": int, "history": list, "shared": dict, "runs": dict, "data": dict},
}
GIVEN = ("overrides", "config_dir")  # of the command
ORIGINS = {
    STUDY: (*GIVEN, "file", "name", "history", "shared", "runs"),
    SEARCH: (*GIVEN, "file", "name", "n_trials", "objective", "direction", "monitored", "data"),
    SWEEP: GIVEN,
}


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
        PlanError: the file cannot be read now, and may be whole.
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


def read_origin(path: Path) -> dict[str, Any] | None:
    """What a `study.json`, `search.json` or `sweep.json` has; None where there is no file.

    Raises:
        PlanError: it is damaged, or cannot be read now.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        for key in ORIGINS[path.name]:
            if not isinstance(content[key], TYPES.get(key, object)):
                raise ValueError(f"{key} is {content[key]!r}")
        if not all(isinstance(text, str) for text in content["overrides"]):
            raise ValueError(f"overrides are {content['overrides']!r}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise damage(path, error) from error
    found: dict[str, Any] = content
    return found


def damage(path: Path, error: Exception) -> PlanError:
    """The error of such a file that is damaged."""
    return PlanError(
        f"{path} is damaged ({type(error).__name__}: {error}); move it away, and the next "
        "`isotrain run` or `train -m` of that command writes it anew"
    )


def cannot_be_read(path: Path, error: OSError) -> PlanError:
    """What is told of a file whose storage fails: it may be whole, and stays as it is."""
    return PlanError(
        f"{path} cannot be read now ({error.strerror or error}); it stays as it is, and the same "
        "command goes on when it can be read"
    )
