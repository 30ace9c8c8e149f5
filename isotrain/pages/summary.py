"""What a run prints: where it writes, what trains, and its scores and isotropy at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isotrain.keys import Place
from isotrain.pages.rows import LABELS, chance, isotropy_places, measured, series

FILES = ("curves.png", "metrics.jsonl", "result.json")  # of a finished run, for its reader


def print_start(folder: Path, n_parameters: Mapping[str, int], n_rows: Mapping[str, int]) -> None:
    """One line: folder, trainable parameters, rows."""
    share = n_parameters["trainable"] / n_parameters["total"]
    rows = ", ".join(f"{n:,} {split}" for split, n in n_rows.items() if n)
    say(
        f"{folder}: training {n_parameters['trainable']:,} of {n_parameters['total']:,} "
        f"parameters ({share:.0%}); rows: {rows}"
    )


def print_phases(phases: Sequence[Mapping[str, Any]], n_parameters: Mapping[str, int]) -> None:
    """A line for each phase: what trains from which step, at which peak learning rates.

    Nothing where everything trains from the start.

    >>> group = {"parts": ["block 2", "head"], "n_parameters": 5, "lr": 1e-4}
    >>> phases = [{"from_step": 0, "n_parameters": 5, "groups": [group]}]
    >>> print_phases(phases, {"total": 20, "trainable": 5})
    from step 0: 5 parameters (25%) in block 2, head; learning rate 0.0001
    >>> print_phases(phases, {"total": 5, "trainable": 5})
    """
    if len(phases) < 2 and n_parameters["trainable"] == n_parameters["total"]:
        return
    for phase in phases:
        parts = dict.fromkeys(part for group in phase["groups"] for part in group["parts"])
        rates = [group["lr"] for group in phase["groups"]]
        spread = dict.fromkeys(f"{rate:.3g}" for rate in (min(rates), max(rates)))
        say(
            f"from step {phase['from_step']}: {phase['n_parameters']:,} parameters "
            f"({phase['n_parameters'] / n_parameters['total']:.0%}) in {', '.join(parts)}; "
            f"learning rate {' to '.join(spread)}"
        )


def print_changes(changes: Mapping[str, Any]) -> None:
    """One line where the training data were changed: rows kept, of which class, labels, sentences.

    >>> print_changes({"rows": {"before": 3000, "after": 750}, "labels_replaced": 75,
    ...                "labels_changed": 70})
    changed data: 750 of 3,000 training rows; 75 labels replaced, of which 70 differ
    """
    if not changes:
        return
    rows = changes["rows"]
    line = f"changed data: {rows['after']:,} of {rows['before']:,} training rows"
    if classes := changes.get("classes"):
        counts = (f"{name} {n['kept']:,} of {n['before']:,}" for name, n in classes.items())
        line += f" ({', '.join(counts)})"
    if "labels_replaced" in changes:
        replaced, differ = changes["labels_replaced"], changes["labels_changed"]
        line += f"; {replaced:,} labels replaced, of which {differ:,} differ"
    say(line + ("; sentence 1 empty in every split" if "sentence1" in changes else ""))


def print_summary(
    result: Mapping[str, Any],
    rows: Sequence[dict[str, float]],
    folder: Path,
    note: str = "",
) -> None:
    """Scores first and last with their N, isotropy of the last layer, the folder and its files.

    Last are those of the weights that were selected; how they were, and whether the run is
    degenerate, is told behind the table.
    """
    n_dev, n_test = result["n_rows"]["dev"], result["n_rows"]["test"]
    table = Table(title=f"{folder.name}, seed {result['seed']}", title_justify="left")
    for heading in ("", "step 0", f"step {result.get('selected_step', result['steps'])}"):
        table.add_column(heading, justify="left" if not heading else "right")
    values = series(rows, result["monitor"])
    if values:  # none in a debugging run without validation
        score = f"{result['monitor']} (N = {n_dev:,})"
        last = result["scores"].get(result["monitor"], values[-1][1])
        table.add_row(score, f"{values[0][1]:.4f}", f"{last:.4f}")
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
            f"{result['scores'].get('/'.join(('isotropy', *place)), found[-1][1]):.4f}",
        )
    say(table)
    for line in _remarks(result):
        say(line)
    note = f" ({note})" if note else ""
    seconds = result["timings_s"]["total"]
    files = [name for name in FILES if (folder / name).is_file()]
    say(f"{folder}{note}: {', '.join(files)}; {seconds:.0f} s")


def _remarks(result: Mapping[str, Any]) -> list[str]:
    """How the weights were selected, where that was by evaluations, and whether a run collapsed."""
    lines = []
    step, n = result.get("selected_step"), result.get("n_evaluations")
    asked = result.get("config", {}).get("training", {}).get("select", "last")
    if result.get("select") == "best":
        lines.append(f"step {step}: best of {n} evaluations on dev: optimistic; test is not")
    elif result.get("select") == "holdout":
        n_rows = result["n_rows"]["holdout"]
        lines.append(f"step {step}: best of {n} evaluations on {n_rows:,} held-out training rows")
    elif asked != "last":
        lines.append(f"no evaluation had a score for training.select={asked}: the last weights")
    if result.get("stopped_by_patience"):
        lines.append(f"stopped after step {result['steps']} by training.patience")
    if result.get("degenerate"):
        lines.append(f"degenerate: {result['degenerate_reason']}")
    return lines


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
