"""`study.json` of a study's folder: what is computed there, so that no other study joins it.

It keeps, too, every task, arm and seed that was ever planned there, and how the study's definition
has changed (`isotrain.studies.history`): what is left out later is not forgotten.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from isotrain.config.compose import content_hash, plain
from isotrain.config.schema import NOT_CONTENT
from isotrain.console import say
from isotrain.jobs.stored import ASIDE, PlanError, put_aside, read_json, stored
from isotrain.runs.files import as_json, write_json
from isotrain.runs.secrets import redacted
from isotrain.studies.definition import Study
from isotrain.studies.history import Definition, entry, in_words, is_of
from isotrain.studies.plan import Job

FILE, ABSENT = "study.json", "absent"
MOST = 3  # names and keys told of each kind


class _Kept(NamedTuple):
    """What a `study.json` has."""

    runs: Mapping[str, Any] = MappingProxyType(
        {}
    )  # by `<task>-<arm>`: hash, keys, folder of each seed
    history: tuple[Definition, ...] = ()
    overrides: tuple[str, ...] | None = None  # of the last call's command line
    damage: str = ""


def check_identity(
    study: Study, jobs: Sequence[Job], folder: Path, overrides: Sequence[str]
) -> None:
    """Refuse a folder in which a study of the same name computes something else.

    That is: a task and arm of the same names with another content, another baseline, or not one
    task and arm in common. Tasks, arms and seeds that are new there are welcome, and so are those
    that are left out now. A damaged `study.json` is told, and tells nothing.

    Args:
        study: of that name.
        jobs: its runs, as planned.
        folder: the study's.
        overrides: of the command line.

    Raises:
        PlanError: which overrides the last call had, if others; which tasks and arms, which keys
            differ, and the ways out; or `study.json` cannot be read now.
    """
    kept = _read(folder)
    if kept.damage:
        say(
            f"{kept.damage}: it cannot be told whether another study was run there; the next run "
            "keeps it aside and writes it anew"
        )
    found: dict[str, list[str]] = {}
    pairs = _pairs(jobs)
    for name, (job, *_) in pairs.items():
        old = kept.runs.get(name)
        if old is not None and old["hash"] != content_hash(job.of_pair):
            found.setdefault(_difference(old["keys"], _keys(job)), []).append(name)
    lines = [f"{_few(names)}: {difference}" for difference, names in found.items()]
    if kept.runs and not kept.runs.keys() & pairs.keys():
        lines.append(f"none of {_few([*pairs])} is on record there, which has {_few([*kept.runs])}")
    if kept.history and kept.history[-1]["baseline"] != study.baseline:
        lines.append(f"baseline was {kept.history[-1]['baseline']} and is {study.baseline}")
    if lines:
        given = redacted(list(overrides))
        if kept.overrides is not None and sorted(kept.overrides) != sorted(given):
            had, has = (shlex.join(own) or "none" for own in (kept.overrides, given))
            lines.insert(
                0,
                f"the call that study {study.name} was run with had the overrides {had}, and this "
                f"one has {has}; run, report and status of a study need the same ones",
            )
        lines.append(
            f"the folder {folder} belongs to another study {study.name}; take another name with "
            "--name NAME (run, report and status have it), or delete that folder (the runs "
            "themselves lie elsewhere and stay)"
        )
        raise PlanError("\n".join(lines))


def write_identity(
    study: Study,
    jobs: Sequence[Job],
    folder: Path,
    file: str,
    overrides: Sequence[str],
    config_dir: str | None = None,
) -> None:
    """Write `study.json`, with what it had of other tasks and arms, and of earlier definitions.

    What was planned and never begun counts for no earlier definition.

    Args:
        study: of that name.
        jobs: its runs, as `check_identity` passed them.
        folder: the study's.
        file: the name or path that the study was given by.
        overrides: of the command line.
        config_dir: more config groups.
    """
    kept = _read(folder)
    if kept.damage:
        put_aside(folder / FILE)
    runs = dict(kept.runs)
    for name, own in _pairs(jobs).items():
        folders = kept.runs[name]["folders"] if name in kept.runs else {}
        folders = folders | {
            str(job.seed): f"{job.folder.parent.name}/{job.folder.name}" for job in own
        }
        keys = _keys(own[0])
        runs[name] = {"hash": content_hash(own[0].of_pair), "keys": keys, "folders": folders}
    history = _history(kept, runs, study, folder)
    all_keys = [run["keys"] for run in runs.values()]
    shared = {
        k: v for k, v in all_keys[0].items() if all(k in own and own[k] == v for own in all_keys)
    }
    for run in runs.values():
        run["keys"] = {k: v for k, v in run["keys"].items() if k not in shared}
    content = {"name": study.name, "file": file, "overrides": redacted(list(overrides))}
    content |= {"config_dir": config_dir}
    content |= {"history": list(history), "shared": shared, "runs": runs}
    write_json(folder / FILE, content)


def changes(folder: Path, study: Study) -> list[str]:
    """A line for each change of the study since its first run started; empty without any.

    Margins before, tasks, arms and seeds that were added, with the number of runs that had finished
    by then, and those that are left out now. A study that was never run in `folder` has none.

    Args:
        folder: of the study, with its `study.json`.
        study: as it is now.
    """
    kept = _read(folder)
    lines = []
    if kept.damage or any(folder.glob(f"{FILE}{ASIDE}*")):
        lines.append(f"{FILE} was damaged: what was changed before that is not known")
    if not kept.runs:
        return lines

    def has_finished(kind: str, name: Any) -> bool:
        runs = {}
        for pair, run in kept.runs.items():
            task, _, arm = pair.partition("-")
            own = {
                seed: place
                for seed, place in run["folders"].items()
                if {"tasks": task, "arms": arm, "seeds": seed}[kind] == str(name)
            }
            runs[pair] = {"folders": own}
        return any(stored(place).is_finished for place in _places(runs, folder))

    return lines + in_words(_history(kept, kept.runs, study, folder), has_finished)


def arms_on_record(folder: Path, task: str) -> list[str]:
    """Every arm of a task, the baseline among them, of which a run was planned here and finished.

    Those that the study has left out since are among them. Empty without a `study.json`.
    """
    runs = _read(folder).runs
    return [
        pair.partition("-")[2]
        for pair in runs
        if pair.partition("-")[0] == task
        and any(stored(place).is_finished for place in _places({pair: runs[pair]}, folder))
    ]


def _history(
    kept: _Kept, runs: Mapping[str, Any], study: Study, folder: Path
) -> tuple[Definition, ...]:
    """The definitions so far, and that of the study where it is another one.

    The runs before it are counted; the first one counts `runs`, its own.
    """
    is_begun = any((place / "result.json").exists() for place in _places(kept.runs, folder))
    past = kept.history if is_begun else ()
    if past and is_of(past[-1], study):
        return past
    places = _places(kept.runs if past else runs, folder)
    n_finished = sum(stored(place).is_finished for place in places)
    return (*past, entry(study, len(places), n_finished))


def _places(runs: Mapping[str, Any], folder: Path) -> list[Path]:
    """The folders of runs on record, beside the studies of `folder`."""
    return [folder.parents[1] / own for run in runs.values() for own in run["folders"].values()]


def _read(folder: Path) -> _Kept:
    """What `study.json` has, each task and arm with all its keys."""
    path = folder / FILE
    try:
        content = read_json(path)
        if content is None:
            return _Kept()
        runs = {
            name: {
                "hash": run["hash"],
                "keys": {**content["shared"], **run["keys"]},
                "folders": dict(run.get("folders", {})),
            }
            for name, run in content["runs"].items()
        }
        overrides = content.get("overrides")
        return _Kept(
            runs,
            tuple(content.get("history", ())),
            None if overrides is None else tuple(overrides),
        )
    except PlanError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return _Kept(damage=f"{path} is damaged ({type(error).__name__})")


def _pairs(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """The jobs of every task and arm; what differs between seeds is no part of the identity."""
    pairs: dict[str, list[Job]] = {}
    for job in jobs:
        pairs.setdefault(f"{job.task}-{job.arm}", []).append(job)
    return pairs


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
