"""Read stored files: the result of a run, the command of a plan, or a damaged file."""

from pathlib import Path
from typing import Any, NamedTuple

from isotrain.runs.files import read_result
from isotrain.runs.shapes import COUNT, REST, ChangedError, DamagedError, parsed

STUDY, SEARCH, SWEEP = "study.json", "search.json", "sweep.json"  # in a plan's folder
DATABASE = "study.db"  # likewise: the trials of a search
COPY = "plan.yaml"  # likewise: copy of a study or search file, in case that is deleted
GIVEN = {"overrides": [str], "config_dir": (str, None)}  # of the command
RUN = {"keys": dict, "seeds": {REST: str}}
FILES = GIVEN | {"file": str, "name": str}
ORIGINS: dict[str, dict[str, Any]] = {
    STUDY: FILES | {"history": [dict], "shared": dict, "runs": {REST: RUN}},
    SEARCH: FILES
    | {"n_trials": COUNT, "objective": str, "direction": str, "data": {REST: str}}
    | {"monitored": (str, None)},
    SWEEP: GIVEN,
}


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


def read_origin(path: Path) -> dict[str, Any] | None:
    """Content of a `study.json`, `search.json` or `sweep.json`; None without a file.

    Raises:
        PlanError: it is damaged, or cannot be read now.
    """
    try:
        return parsed(path.read_bytes(), path, ORIGINS[path.name], *ORIGINS[path.name])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_be_read(path, error) from error
    except DamagedError as error:
        raise PlanError(str(error)) from error


def cannot_be_read(path: Path, error: OSError) -> PlanError:
    """Error for a file on failing storage."""
    return PlanError(
        f"{path} cannot be read now ({error.strerror or error}); it is left unchanged: give the "
        "same command again when it can be read"
    )
