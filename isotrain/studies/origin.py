"""`study.json`, `search.json`, `sweep.json` of a plan's folder: the command that gave it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isotrain.jobs.stored import PlanError, read_json

STUDY, SEARCH, SWEEP = "study.json", "search.json", "sweep.json"
COPY = "plan.yaml"  # of the file of a study or search, for when that is gone
TYPES: dict[str, tuple[type, ...]] = {
    **{"file": (str,), "name": (str,), "overrides": (list,), "config_dir": (str, type(None))},
    **{"n_trials": (int,), "history": (list,), "shared": (dict,), "runs": (dict,)},
}
KEYS = {  # of `TYPES`
    STUDY: ("file", "name", "overrides", "config_dir", "history", "shared", "runs"),
    SEARCH: ("file", "name", "overrides", "config_dir", "n_trials"),
    SWEEP: ("overrides", "config_dir"),
}


def read_origin(path: Path) -> dict[str, Any] | None:
    """What such a file has; None where there is no file.

    Raises:
        PlanError: it is damaged, or cannot be read now.
    """
    try:
        content = read_json(path)
        if content is None and not path.exists():
            return None
        for key in KEYS[path.name]:
            if not isinstance(content[key], TYPES[key]):
                raise ValueError(f"{key} is {content[key]!r}")
        if not all(isinstance(text, str) for text in content["overrides"]):
            raise ValueError(f"overrides are {content['overrides']!r}")
    except PlanError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise damage(path, error) from error
    found: dict[str, Any] = content
    return found


def damage(path: Path, error: Exception) -> PlanError:
    """The error of a file that is damaged."""
    return PlanError(
        f"{path} is damaged ({type(error).__name__}: {error}); move it away, and the next "
        "`isotrain run` or `train -m` of that command writes it anew"
    )
