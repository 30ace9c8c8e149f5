"""`study.json` of a study's folder: what is computed there, so that no other study joins it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrain.config.compose import content_hash, plain
from isotrain.config.redaction import redacted
from isotrain.config.schema import NOT_CONTENT
from isotrain.pages.summary import say
from isotrain.results import as_json, write_json
from isotrain.study.definition import Study, StudyError
from isotrain.study.plan import Job

FILE, ABSENT = "study.json", "absent"
MOST = 3  # names and keys told of each kind


def check_identity(study: Study, jobs: Sequence[Job], folder: Path) -> None:
    """Refuse a folder in which a task and arm of the same names compute something else.

    Tasks, arms and seeds that are new there are welcome, and so are those that are left out now.
    A damaged `study.json` is told, and tells nothing.

    Raises:
        StudyError: which tasks and arms, which keys differ, and the ways out.
    """
    earlier = _read(folder)
    found: dict[str, list[str]] = {}
    for name, job in _pairs(jobs).items():
        old = earlier.get(name)
        if old is not None and old["hash"] != content_hash(job.of_pair):
            found.setdefault(_difference(old["keys"], _keys(job)), []).append(name)
    if found:
        lines = [f"{_few(names)}: {difference}" for difference, names in found.items()]
        lines.append(
            f"the folder {folder} belongs to another study {study.name}; take another name with "
            "--name NAME (run, report and status have it), or delete that folder (the runs "
            "themselves lie elsewhere and stay)"
        )
        raise StudyError("\n".join(lines))


def write_identity(
    study: Study, jobs: Sequence[Job], folder: Path, file: str, overrides: Sequence[str]
) -> None:
    """Write `study.json`, with what it had of other tasks and arms.

    Args:
        study: of that name.
        jobs: its runs, as `check_identity` passed them.
        folder: the study's.
        file: the name or path that the study was given by.
        overrides: of the command line.
    """
    runs = _read(folder)
    runs |= {
        name: {"hash": content_hash(job.of_pair), "keys": _keys(job)}
        for name, job in _pairs(jobs).items()
    }
    keys = [run["keys"] for run in runs.values()]
    shared = {k: v for k, v in keys[0].items() if all(k in own and own[k] == v for own in keys)}
    for run in runs.values():
        run["keys"] = {k: v for k, v in run["keys"].items() if k not in shared}
    content = {"name": study.name, "file": file, "overrides": redacted(list(overrides))}
    write_json(folder / FILE, {**content, "shared": shared, "runs": runs})


def _read(folder: Path) -> dict[str, Any]:
    """The hash and all keys of every task and arm that a `study.json` has."""
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: {"hash": run["hash"], "keys": {**content["shared"], **run["keys"]}}
            for name, run in content["runs"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        say(
            f"{path} is damaged ({type(error).__name__}): it cannot be told whether another study "
            "was run there; the next run writes it anew"
        )
        return {}


def _pairs(jobs: Sequence[Job]) -> dict[str, Job]:
    """One job of every task and arm; what differs between seeds is no part of the identity."""
    return {f"{job.task}-{job.arm}": job for job in jobs}


def _keys(job: Job) -> dict[str, Any]:
    """What is computed, as dotted keys; the seed and what names no run are left out."""
    flat = _flat(as_json(redacted(plain(job.of_pair))))
    outside = ("seed", *NOT_CONTENT)
    return {
        key: value
        for key, value in flat.items()
        if not any(key == name or key.startswith(f"{name}.") for name in outside)
    }


def _flat(node: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = value
    return found


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """In words, which keys differ.

    >>> _difference({"a": 1, "b.c": 2}, {"a": 1, "b.c": 3, "d": 4})
    'b.c was 2 and is 3, d was absent and is 4'
    """
    texts = [
        f"{key} was {old.get(key, ABSENT)} and is {new.get(key, ABSENT)}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key, ABSENT) != new.get(key, ABSENT)
    ]
    return _few(texts) or "secret values that are not kept"


def _few(texts: Sequence[str]) -> str:
    more = [f"and {len(texts) - MOST} more"] if len(texts) > MOST else []
    return ", ".join([*texts[:MOST], *more])
