"""`study.json` in a study's folder: its identity, so that no other study uses the folder.

It keeps every task, method and seed ever planned there, and a history: a list of the study's
definitions, the present one last, each with the number of runs on record when it came, and of those
that had finished by then. A choice made after results were there shows.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from isotrain.config.compose import key_of, recorded, without_locations
from isotrain.console import counted
from isotrain.jobs.archive import Archive, Job, Record
from isotrain.jobs.stored import STUDY, PlanError, read_origin, stored
from isotrain.runs.files import write_json
from isotrain.runs.secrets import redacted
from isotrain.studies.definition import Study

ABSENT = "absent"
KINDS = ("tasks", "methods", "seeds")
# Of a study: its margin, baseline and the names of its parts, and the runs before it.
Definition = dict[str, Any]
MOST = 3  # names and keys listed of each kind


class _Kept(NamedTuple):
    """Content of a `study.json`."""

    runs: Mapping[str, Any] = MappingProxyType({})  # by `<task>-<method>`: keys, content by seed
    history: tuple[Definition, ...] = ()
    overrides: Sequence[str] = ()  # of the last call's command line


def check_identity(
    study: Study, jobs: Sequence[Job], folder: Path, overrides: Sequence[str]
) -> None:
    """Reject a folder in which a study of the same name has other content.

    Raises:
        PlanError: which keys differ, and the ways out; or `study.json` is damaged.
    """
    if lines := differences(study, jobs, folder, overrides):
        raise PlanError("\n".join(lines))


def differences(
    study: Study, jobs: Sequence[Job], folder: Path, overrides: Sequence[str]
) -> list[str]:
    """What a study of the same name computes otherwise in a folder, in lines; empty if nothing.

    That is: a task and method of the same names with another content, another baseline, or not one
    task and method in common. What is new there is welcome, so is what is left out now, and data
    or weights in another folder.
    """
    kept = _read(folder)
    found: dict[str, list[str]] = {}
    pairs = _pairs(jobs)
    for name, (job, *_) in pairs.items():
        if name in kept.runs and (differ := _differing(kept.runs[name]["keys"], _keys(job))):
            found.setdefault(_few([*differ.values()]), []).append(name)
    lines = [f"{_few(names)}: {difference}" for difference, names in found.items()]
    if kept.runs and not kept.runs.keys() & pairs.keys():
        lines.append(f"none of {_few([*pairs])} is on record there, which has {_few([*kept.runs])}")
    if kept.history and kept.history[-1]["baseline"] != study.baseline:
        lines.append(f"baseline was {kept.history[-1]['baseline']} and is {study.baseline}")
    if lines:
        given = redacted(list(overrides))
        if sorted(kept.overrides) != sorted(given):
            had, has = (shlex.join(own) or "none" for own in (kept.overrides, given))
            lines.insert(
                0,
                f"the call that study {study.name} was run with had the overrides {had}, and this "
                f"one has {has}",
            )
        n_finished = _n_finished(kept.runs, Archive(folder))
        lines.append(
            f"the folder {folder} belongs to another study {study.name}; give the overrides "
            "that it was run with, take another name with --name NAME, or delete that folder (its "
            f"runs, {n_finished} of them finished, are elsewhere and stay)"
        )
    return lines


def of_earlier_keys(
    jobs: Sequence[Job], folder: Path, overrides: Sequence[str]
) -> tuple[Sequence[Job], str]:
    """The runs with the ids of records that have other keys, such as those of an earlier version.

    Where nothing is on record that computes what any of them would, each has one finished run of
    its task, method and seed which no other study and no search has, and the overrides are those of
    `study.json`, if there is one. A record may lack keys or have more, but shared keys have equal
    values. If some runs have no such record or several, all stay as they are.

    Returns:
        The runs, and a line that says which keys differ; empty where their own ids hold.
    """
    archive, kept = Archive(folder), _read(folder)
    was, now = (
        {text for text in own if key_of(text) != "output_dir"}
        for own in (kept.overrides, redacted(list(overrides)))
    )
    if (kept.runs and was != now) or any(archive.of(job.id) for job in jobs):
        return jobs, ""
    others = [path.parent for path in folder.absolute().parent.glob(f"*/{STUDY}")]
    taken = {
        content
        for other in others
        if other != folder.absolute()
        for run in _read(other).runs.values()
        for content in run["seeds"].values()
    }
    found: dict[tuple[str, str, int], list[Record]] = {}
    for record in archive.records:
        if record.is_finished and not record.search and record.id.content not in taken:
            key = record.id.task, record.id.method, record.seed
            found.setdefault(key, []).append(record)
    own = [found.get((job.id.task, job.method, job.seed), []) for job in jobs]
    keys, chosen = dict[str, None](), list[Job]()
    for job, records in zip(jobs, own, strict=True):
        fit = _fitting(job, records) if records else []
        if len(fit) != 1:
            return jobs, "" if kept.runs else _of_other_settings(jobs, own, folder)
        ((record, differing),) = fit
        keys |= dict.fromkeys(differing)
        chosen.append(job._replace(id=record.id))
    return chosen, f"these runs have other keys than the study has now: {', '.join(keys)}"


def _of_other_settings(
    jobs: Sequence[Job], records: Sequence[Sequence[Record]], folder: Path
) -> str:
    """How many finished records there are for the jobs, and what sets the nearest one apart."""
    found = [(job, own) for job, own in zip(jobs, records, strict=True) if own]
    if not found:
        return ""
    of_a_seed = [pair for pair in found if pair[0].seed == found[0][0].seed]  # all would take long
    planned = {job.name: _planned_keys(job) for job, _ in of_a_seed}
    pairs = ((job.name, one) for job, own in of_a_seed for one in own)
    differ = ((name, _differing(_stored_keys(one), planned[name])) for name, one in pairs)
    name, nearest = min(differ, key=lambda pair: len(pair[1]))
    n = len({one.folder for _, own in found for one in own})
    return (
        f"{folder.absolute().parents[1]} holds {counted(n, 'finished run')} of these tasks, "
        f"methods and seeds with other settings: of {name}, {_few([*nearest.values()])}; give the "
        "overrides that they were run with"
    )


def write_identity(
    study: Study,
    jobs: Sequence[Job],
    folder: Path,
    file: str,
    overrides: Sequence[str],
    config_dir: str | None = None,
) -> None:
    """Write `study.json`, with what it had of other tasks and methods, and of earlier definitions.

    Runs that were planned but never started do not count as an earlier definition.
    """
    kept = _read(folder)
    runs = dict(kept.runs)
    for name, own in _pairs(jobs).items():
        known = kept.runs[name]["seeds"] if name in kept.runs else {}
        seeds = known | {str(job.seed): job.id.content for job in own}
        runs[name] = {"keys": _keys(own[0]), "seeds": seeds}
    history = _history(kept, runs, study, folder)
    all_keys = [run["keys"] for run in runs.values()]
    shared = {
        k: v for k, v in all_keys[0].items() if all(k in own and own[k] == v for own in all_keys)
    }
    for run in runs.values():
        run["keys"] = {k: v for k, v in run["keys"].items() if k not in shared}
    content = {
        **{"name": study.name, "file": file, "overrides": redacted(list(overrides))},
        **{"config_dir": config_dir, "history": list(history), "shared": shared, "runs": runs},
    }
    write_json(folder / STUDY, content)


def changes(folder: Path, study: Study) -> list[str]:
    """A line for each change of the study since its first run started; empty without any.

    Margins before; tasks, methods and seeds added, with the number of runs that had finished
    by then, and those that are left out now. A study that was never run in `folder` has none.
    """
    kept, archive = _read(folder), Archive(folder)
    if not kept.runs:
        return []

    def has_finished(kind: str, name: Any) -> bool:
        runs = {}
        for pair, run in kept.runs.items():
            task, _, method = pair.partition("-")
            seeds = {
                seed: content
                for seed, content in run["seeds"].items()
                if {"tasks": task, "methods": method, "seeds": seed}[kind] == str(name)
            }
            runs[pair] = {"seeds": seeds}
        return _n_finished(runs, archive) > 0

    return in_words(_history(kept, kept.runs, study, folder), has_finished)


def methods_on_record(folder: Path, task: str) -> list[str]:
    """Every method of a task, the baseline too, of which a run was planned here and finished.

    Those that the study has left out since are among them. Empty without a `study.json`.
    """
    runs, archive = _read(folder).runs, Archive(folder)
    return [
        pair.partition("-")[2]
        for pair in runs
        if pair.partition("-")[0] == task and _n_finished({pair: runs[pair]}, archive)
    ]


def definition(study: Study) -> Definition:
    """What a history keeps of a study: margin, baseline, and the names of its parts."""
    names = {kind: list(getattr(study, kind)) for kind in KINDS}
    share = study.margin_share
    margin = study.margin if share is None else f"{share:g} of baseline − untrained"
    return {"margin": margin, "baseline": study.baseline, **names}


def is_of(known: Definition, study: Study) -> bool:
    """Whether an entry of a history has this definition; the order of its parts is none of it."""
    now = definition(study)
    same = all(set(known[kind]) == set(now[kind]) for kind in KINDS)
    return same and all(known[key] == now[key] for key in ("margin", "baseline"))


def in_words(history: Sequence[Definition], has_finished: Callable[[str, Any], bool]) -> list[str]:
    """A line for each change of a history that its present definition does not show.

    `has_finished` says of a kind (`tasks`, `methods` or `seeds`) and a name of that kind whether a
    run of it is on record that finished.
    """
    first, now = history[0], history[-1]
    lines, start = [], "when the first run started"
    if first["n_finished"]:
        start = "at the first call on record"
        lines.append(f"{_when(first)} before the first call on record")
    margins = [(one, other) for one, other in pairwise(history) if one["margin"] != other["margin"]]
    if margins:
        became = (f"became {_margin(new)} when {_when(new)}" for _, new in margins)
        lines.append(f"margin was {_margin(first)} {start}, and {', then '.join(became)}")
    for kind in KINDS:
        seen = list(first[kind])
        for new in history[1:]:
            if added := [name for name in new[kind] if name not in seen]:
                if stay := [name for name in added if name in now[kind]]:
                    text = f"{kind} {listed(stay)} were added to {listed(seen)}"
                    lines.append(f"{text} when {_when(new)}")
                seen += added
        out = [name for name in seen if name not in now[kind]]
        finished = [name for name in out if has_finished(kind, name)]
        unfinished = [name for name in out if name not in finished]
        if finished:
            lines.append(f"{kind} finished earlier and left out now: {listed(finished)}")
        if unfinished:
            lines.append(f"{kind} planned earlier, never finished, left out: {listed(unfinished)}")
    return lines


def listed(names: Iterable[Any]) -> str:
    """Names in their order; three and more numbers in a row as a range.

    >>> listed(["none", "mean"]), listed([0, 1, 2, 5, 7, 8])
    ('none, mean', '0–2, 5, 7, 8')
    """
    parts: list[str] = []
    for _, group in groupby(
        enumerate(names),  # numbers that follow one another differ as their places do
        lambda pair: pair[1] - pair[0] if isinstance(pair[1], int) else pair,
    ):
        own = [str(name) for _, name in group]
        parts += [f"{own[0]}–{own[-1]}"] if len(own) > 2 else own
    return ", ".join(parts)


def _when(known: Definition) -> str:
    return f"{known['n_finished']} of {known['n_runs']} runs had finished"


def _margin(known: Definition) -> str:
    margin = known["margin"]
    return "not stated" if margin is None else margin if isinstance(margin, str) else f"{margin:g}"


def _history(
    kept: _Kept, runs: Mapping[str, Any], study: Study, folder: Path
) -> tuple[Definition, ...]:
    """The definitions so far, and that of the study where it is another one.

    The runs before it are counted; the first one counts `runs`, its own.
    """
    archive = Archive(folder)
    past = kept.history if _n_finished(kept.runs, archive, "begun") else ()
    if past and is_of(past[-1], study):
        return past
    known = kept.runs if past else runs
    n_runs = sum(len(run["seeds"]) for run in known.values())
    entry = {**definition(study), "n_runs": n_runs}
    return (*past, entry | {"n_finished": _n_finished(known, archive)})


def _n_finished(runs: Mapping[str, Any], archive: Archive, state: str = "finished") -> int:
    """Number of recorded runs that have finished, or have started."""
    states = (
        archive.state(pair.partition("-")[2], content)
        for pair, run in runs.items()
        for content in run["seeds"].values()
    )
    return sum(own in ("finished", state) for own in states)


def _read(folder: Path) -> _Kept:
    """What `study.json` has, each task and method with all its keys."""
    content = read_origin(folder / STUDY)
    if content is None:
        return _Kept()
    runs = {
        name: {"keys": {**content["shared"], **run["keys"]}, "seeds": dict(run["seeds"])}
        for name, run in content["runs"].items()
    }
    return _Kept(runs, tuple(content["history"]), content["overrides"])


def _pairs(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """The jobs of every task and method; what differs between seeds is no part of the identity."""
    pairs: dict[str, list[Job]] = {}
    for job in jobs:
        pairs.setdefault(f"{job.task}-{job.method}", []).append(job)
    return pairs


def _keys(job: Job) -> dict[str, Any]:
    """What is computed, as dotted keys, but the seed."""
    return {k: v for k, v in without_locations(recorded(job.of_pair)).items() if k != "seed"}


def _planned_keys(job: Job) -> dict[str, Any]:
    return without_locations(recorded(job.cfg))


def _stored_keys(record: Record) -> dict[str, Any]:
    return without_locations(stored(record.folder).result["config"])


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """The keys that differ, each with how, in words."""
    return {
        key: f"{key} was {old.get(key, ABSENT)} and is {new.get(key, ABSENT)}"
        for key in [*old, *new]
        if old.get(key, ABSENT) != new.get(key, ABSENT)
    }


def _fitting(job: Job, records: Sequence[Record]) -> list[tuple[Record, Mapping[str, str]]]:
    """The records whose shared keys have the values of a run, each with the keys that differ."""
    planned = _planned_keys(job)
    found: list[tuple[Record, Mapping[str, str]]] = []
    for record in records:
        stored = _stored_keys(record)
        differing = _differing(stored, planned)
        if not differing.keys() & stored.keys() & planned.keys():
            found.append((record, differing))
    return found


def _few(texts: Sequence[str]) -> str:
    more = [f"and {len(texts) - MOST} more"] if len(texts) > MOST else []
    return ", ".join([*texts[:MOST], *more])
