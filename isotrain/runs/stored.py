"""The stored result of a run, and errors of plans."""

from pathlib import Path
from typing import Any, NamedTuple

from isotrain.runs.files import ChangedError, DamagedError, read_result


class PlanError(ValueError):
    """A study, search or sweep that cannot run; the message lists every error, one per line."""


class Stored(NamedTuple):
    """The record of a run; empty if missing or damaged."""

    result: dict[str, Any]
    damage: str = ""  # which file, and why it is invalid
    is_changed: bool = False  # a file of a finished run was changed: the run itself says so

    @property
    def is_finished(self) -> bool:
        """Whether the run has finished; it is not trained again."""
        return self.result.get("status") == "finished"


def stored(folder: Path) -> Stored:
    """Read and validate the `result.json` of a run folder; nothing is written.

    Raises:
        PlanError: the file cannot be read now, but may be intact.
    """
    try:
        return Stored(read_result(folder))
    except OSError as error:
        raise cannot_be_read(folder / "result.json", error) from error
    except DamagedError as error:
        return Stored({}, str(error), isinstance(error, ChangedError))


def cannot_be_read(path: Path, error: OSError) -> PlanError:
    """Error for a file on failing storage."""
    return PlanError(
        f"{path} cannot be read now ({error.strerror or error}); it is left unchanged: give the "
        "same command again when it can be read"
    )
