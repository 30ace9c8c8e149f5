"""What a run prints: where it writes, what trains, and its scores and isotropy at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isotrain.pages.rows import LABELS, Place, chance, isotropy_places, measured, series

FILES = ("curves.png", "metrics.jsonl", "result.json")  # of a finished run, for its reader


def print_start(folder: Path, n_parameters: Mapping[str, int], n_rows: Mapping[str, int]) -> None:
    """One line: folder, trainable parameters, rows."""
    share = n_parameters["trainable"] / n_parameters["total"]
    rows = ", ".join(f"{n:,} {split}" for split, n in n_rows.items() if n)
    say(
        f"{folder}: training {n_parameters['trainable']:,} of {n_parameters['total']:,} "
        f"parameters ({share:.0%}); rows: {rows}"
    )


def print_summary(
    result: Mapping[str, Any],
    rows: Sequence[dict[str, float]],
    folder: Path,
    note: str = "",
) -> None:
    """Scores first and last with their N, isotropy of the last layer, the folder and its files."""
    n_dev, n_test = result["n_rows"]["dev"], result["n_rows"]["test"]
    table = Table(title=f"{folder.name}, seed {result['seed']}", title_justify="left")
    for heading in ("", "step 0", f"step {result['steps']}"):
        table.add_column(heading, justify="left" if not heading else "right")
    values = series(rows, result["monitor"])
    if values:  # none in a debugging run without validation
        score = f"{result['monitor']} (N = {n_dev:,})"
        table.add_row(score, f"{values[0][1]:.4f}", f"{values[-1][1]:.4f}")
    test = result["monitor"].replace("val/", "test/")
    if test in result["scores"]:
        table.add_row(f"{test} (N = {n_test:,})", "", f"{result['scores'][test]:.4f}")
    places = isotropy_places(rows)
    layers = sorted({p.where for p in places if p.view == "tokens"})
    metrics = measured(places)
    shown = [p for p in places if p.metric in metrics and p.view in ("before", "after")]
    shown += [p for p in places if p.metric in metrics and p.where == (layers[-1:] or [""])[0]]
    for place in shown:
        n = places[Place("n_rows", place.where, place.view)][-1][1]
        found = places[place]
        by_chance = f"; null {null}" if (null := chance(places, place)) else ""
        table.add_row(
            f"{place.metric} {place.where}/{place.view} (N = {int(n):,}{by_chance})",
            f"{found[0][1]:.4f}",
            f"{found[-1][1]:.4f}",
        )
    say(table)
    note = f" ({note})" if note else ""
    seconds = result["timings_s"]["total"]
    files = [name for name in FILES if (folder / name).is_file()]
    say(f"{folder}{note}: {', '.join(files)}; {seconds:.0f} s")


def print_layers(arms: Mapping[str, Sequence[dict[str, float]]]) -> None:
    """Isotropy of every layer at the end of each arm, one table per metric."""
    by_arm = {arm: isotropy_places(rows) for arm, rows in arms.items()}
    places = [p for p in next(iter(by_arm.values())) if p.where.startswith("layer_")]
    views = sorted({p.view for p in places if p.view in ("cls", "tokens")})
    layers = sorted({p.where for p in places if p.view in views})
    for metric in measured(places):
        title = f"{LABELS.get(metric, metric)}, every layer, end of training"
        table = Table(title=title, title_justify="left")
        table.add_column("layer")
        columns = [(view, arm) for view in views for arm in by_arm]
        for view, arm in columns:
            n = by_arm[arm][Place("n_rows", layers[0], view)][-1][1]
            table.add_column(f"{view}\nN = {int(n):,}\n{arm}", justify="right")
        for layer in layers:
            found = [by_arm[arm].get(Place(metric, layer, view)) for view, arm in columns]
            table.add_row(layer, *(f"{values[-1][1]:.4f}" if values else "–" for values in found))
        say(table)


def say(what: Any) -> None:
    """Print; a path is never broken into two lines, in a terminal or a log."""
    Console(soft_wrap=True, markup=False, highlight=False).print(what)
