"""Tabulate every finished run below a folder, of any kind of plan."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.config.compose import run_id
from isotrain.console import say, spinner
from isotrain.results.findings import titled
from isotrain.results.groups import Found, differing, group_table, texts, without_seeds
from isotrain.results.markdown import rendered
from isotrain.results.result import mixtures
from isotrain.results.run_frames import csv_text, parquet_bytes, runs_frame, scores_frame
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
        found, others, tried = find_runs(root)
    if not found:
        reasons = "".join(f"\n  {line}" for line in others)
        raise PlanError(f"no finished run below {root}{reasons}")
    runs = [one.run for one in found]
    keys = differing(found)
    if tried:
        keys = [{"search": one.search, **own} for one, own in zip(found, keys, strict=True)]
    results = [one for one in found if not one.search]
    trials = [
        (task, search, n, [one for one in found if (one.run.task, one.search) == (task, search)])
        for (task, search), n in tried.items()
    ]
    text = rendered(
        "runs.md.j2",
        n_runs=len(runs),
        n_trials=len(runs) - len(results),
        others=others,
        collapsed=collapsed_runs(runs),
        mixed=titled(mixtures(runs)),
        results=group_table(results),
        trials=[(*of, group_table(own)) for *of, own in trials],
    )
    files = {
        "groups.md": text.encode(),
        "runs.csv": csv_text(runs_frame(runs, keys)).encode(),
        "runs.parquet": parquet_bytes(scores_frame(runs, keys)),
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

    runs: list[Found]  # the finished ones, by task, method and seed
    others: list[str]  # one line for every other run
    tried: Mapping[tuple[str, str], int]  # by task and search: all configurations tried


def find_runs(root: Path) -> Collected:
    """The runs below a folder.

    Of runs with equal configuration, data and seed, the last one to finish counts.
    """
    found: dict[tuple[object, ...], Found] = {}
    others: list[str] = []
    tried = defaultdict[tuple[str, str], set[frozenset[tuple[str, str]]]](set)
    for folder in _run_folders(root, others):
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
                tried[task, search].add(without_seeds(keys))
            if not is_finished:
                others.append(f"{name}: {_how_far(result, folder)}")
                continue
            untrained = " (untrained)" if result.get("steps") == 0 else ""
            method, seed = f"{result['method']}{untrained}", int(result["seed"])
            parts = result["config"].get("names") or {}
            one = Found(run_of(result, folder, task, method, seed), keys, search, parts)
        except DAMAGE as error:
            others.append(f"{name}: {damaged(error)}")
            continue
        same = (task, method, one.run.data, *sorted(keys.items()))
        twin = found.get(same)
        if twin is not None:
            older, one = sorted((twin, one), key=lambda one: one.run.finished_at)
            others.append(
                f"{older.run.folder.relative_to(root)}: the same run as "
                f"{one.run.folder.relative_to(root)}, which finished later and counts"
            )
        found[same] = one
    runs = sorted(found.values(), key=lambda one: (*one.run[:3], one.run.name))
    return Collected(runs, sorted(others), {name: len(tried[name]) for name in sorted(tried)})


def _how_far(result: Mapping[str, Any], folder: Path) -> str:
    """Status line of an unfinished run."""
    of_a_search = f", trial of search {result['search']}" if result.get("search") else ""
    if is_owned(folder):
        step = newest_step(folder / "metrics.jsonl")
        return f"running ({'starting' if step is None else f'step {step}'}{of_a_search})"
    if result["status"] == "failed":
        return unfinished(result)
    step = checkpoint_step(folder)
    goes_on = "no checkpoint" if step is None else f"it resumes from step {step}"
    if of_a_search:  # only the search knows whether a stopped trial will resume
        return f"stopped ({goes_on}{of_a_search}: pruned by it, or interrupted)"
    return f"interrupted ({goes_on})"


def _run_folders(root: Path, others: list[str]) -> Iterator[Path]:
    """Every run folder: with a `result.json`, or just started by a process."""

    def tell(error: OSError) -> None:
        others.append(f"{error.filename}: {error.strerror}")

    for folder, names, files in os.walk(root, onerror=tell):
        names.sort()
        path = Path(folder)
        is_run = "result.json" in files or (".lock" in files and is_owned(path))
        names[:] = [] if is_run else [n for n in names if not n.startswith(".")]
        if is_run:
            yield path
