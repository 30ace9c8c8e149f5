"""Tabulate every finished run below a folder, of any kind of plan."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.config.compose import run_id
from isotrain.console import say, spinner
from isotrain.results.findings import titled
from isotrain.results.groups import FinishedRun, differing, group_table, texts, without_seeds
from isotrain.results.markdown import rendered
from isotrain.results.result import mixtures
from isotrain.results.run_frames import csv_text, runs_frame
from isotrain.results.runs import DAMAGE, damaged, run_of, unfinished
from isotrain.results.words import collapsed_runs
from isotrain.runs.files import read_result, replace_files
from isotrain.runs.stored import PlanError, checkpoint_step, is_owned, newest_step


def write_runs(root: Path, out: Path) -> list[Path]:
    """Tabulate the finished runs below `root` into `out`; the files.

    Raises:
        PlanError: there is no such run, or `out` is not writable.
    """
    with spinner(f"reading {root}"):
        entries, other_runs, n_tried = find_runs(root)
    if not entries:
        reasons = "".join(f"\n  {line}" for line in other_runs)
        raise PlanError(f"no finished run below {root}{reasons}")
    runs = [e.run for e in entries]
    keys = differing(entries)
    if n_tried:
        keys = [{"search": e.search, **values} for e, values in zip(entries, keys, strict=True)]
    results = [e for e in entries if not e.search]
    trials = [
        (task, search, n, [e for e in entries if (e.run.task, e.search) == (task, search)])
        for (task, search), n in n_tried.items()
    ]
    text = rendered(
        "runs.md.j2",
        n_runs=len(runs),
        n_trials=len(runs) - len(results),
        other_runs=other_runs,
        collapsed=collapsed_runs(runs),
        mixed=titled(mixtures(runs)),
        results=group_table(results),
        trials=[(*labels, group_table(members)) for *labels, members in trials],
    )
    files = {
        "groups.md": text.encode(),
        "runs.csv": csv_text(runs_frame(runs, keys)).encode(),
    }
    try:
        written = replace_files(out, files)
    except OSError as error:
        raise PlanError(f"cannot write to {out} ({error.strerror or error}): give --out") from error
    say(text)
    say(f"{out}: {', '.join(files)}")
    return written


class Collected(NamedTuple):
    """The runs below a folder."""

    runs: list[FinishedRun]  # the finished ones, by task, method and seed
    messages: list[str]  # one line for every other run
    n_tried: Mapping[tuple[str, str], int]  # by task and search: all configurations tried


def find_runs(root: Path) -> Collected:
    """The runs below a folder.

    Of runs with equal configuration, data and seed, the last one to finish counts.
    """
    entries: dict[tuple[object, ...], FinishedRun] = {}
    messages: list[str] = []
    configs = defaultdict[tuple[str, str], set[frozenset[tuple[str, str]]]](set)
    for folder in _run_folders(root, messages):
        name = folder.relative_to(root)
        try:
            result = read_result(folder) or {"status": "running"}  # it has just started
            if "analysis" in result:
                continue
            search, is_finished = str(result.get("search") or ""), result["status"] == "finished"
            task, keys = "", dict[str, str]()
            if search or is_finished:
                task, keys = run_id(result["config"], "").task, texts(result["config"])
            if search:
                configs[task, search].add(without_seeds(keys))
            if not is_finished:
                messages.append(f"{name}: {_how_far(result, folder)}")
                continue
            untrained = " (untrained)" if result.get("steps") == 0 else ""
            method, seed = f"{result['method']}{untrained}", int(result["seed"])
            parts = result["config"].get("names") or {}
            entry = FinishedRun(run_of(result, folder, task, method, seed), keys, search, parts)
        except DAMAGE as error:
            messages.append(f"{name}: {damaged(error)}")
            continue
        identity = (task, method, entry.run.data, *sorted(keys.items()))
        duplicate = entries.get(identity)
        if duplicate is not None:
            older, entry = sorted((duplicate, entry), key=lambda e: e.run.finished_at)
            messages.append(
                f"{older.run.folder.relative_to(root)}: the same run as "
                f"{entry.run.folder.relative_to(root)}, which finished later and counts"
            )
        entries[identity] = entry
    runs = sorted(entries.values(), key=lambda e: (*e.run[:3], e.run.name))
    return Collected(runs, sorted(messages), {key: len(configs[key]) for key in sorted(configs)})


def _how_far(result: Mapping[str, Any], folder: Path) -> str:
    """Status line of an unfinished run."""
    trial_text = f", trial of search {result['search']}" if result.get("search") else ""
    if is_owned(folder):
        step = newest_step(folder / "metrics.jsonl")
        return f"running ({'starting' if step is None else f'step {step}'}{trial_text})"
    if result["status"] == "failed":
        return unfinished(result)
    step = checkpoint_step(folder)
    resume_text = "no checkpoint" if step is None else f"it resumes from step {step}"
    if trial_text:  # only the search knows whether a stopped trial will resume
        return f"stopped ({resume_text}{trial_text}: pruned by it, or interrupted)"
    return f"interrupted ({resume_text})"


def _run_folders(root: Path, messages: list[str]) -> Iterator[Path]:
    """Every run folder: with a `result.json`, or just started by a process."""

    def tell(error: OSError) -> None:
        messages.append(f"{error.filename}: {error.strerror}")

    for folder, names, files in os.walk(root, onerror=tell):
        names.sort()
        path = Path(folder)
        is_run = "result.json" in files or (".lock" in files and is_owned(path))
        names[:] = [] if is_run else [n for n in names if not n.startswith(".")]
        if is_run:
            yield path
