"""Tables of scores over training sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isotrain.analysis.data_scale.curves import (
    ENCODER,
    Curve,
    Factor,
    about,
    curves,
    data_factor,
    measure,
    summaries,
)
from isotrain.analysis.types import Cell, Record, Table
from isotrain.reporting.statistics import Summary, summarize

HEAD = (
    "the same head on all features: standardised by its training rows, trained on four fifths of "
    "the examples of a class, stopped by the loss on the fifth"
)


def scale_tables(records: Sequence[Record]) -> Iterator[Table]:
    """Scores of each task, factors of data, unseen words, diagnostic categories, features."""
    found = curves(records)
    for task, own in found.items():
        yield _score_table(task, own, about(records, task))
    yield _factor_table(records, found)
    yield _unseen_table(records, found)
    if any(r["kind"] == "diagnostic" for r in records):
        yield _diagnostic_table(records)
    yield _feature_table(records)


def _score_table(task: str, own: dict[str, Curve], facts: Record) -> Table:
    found = {name: summaries(curve) for name, curve in own.items()}
    columns = ["examples", *(column for name in own for column in _columns(name))]
    grid = sorted({size for summary in found.values() for size in summary})
    rows = [[size, *(c for name in own for c in _cells(found[name].get(size)))] for size in grid]
    seeds = sorted({summary.n for sizes in found.values() for summary in sizes.values()})
    chance = facts["majority"]
    notes = [
        f"{measure(task)} on {facts['n_scored']:,} examples of the dev split of {task}; "
        f"n = {', '.join(map(str, seeds))} seeds, which draw the training examples (nested) and "
        "train the head; mean, standard deviation and 95 % t interval over them. All of them have "
        "the same examples at the last size.",
        f"{HEAD[0].upper()}{HEAD[1:]}. {task} has {facts['n_train']:,} training examples here.",
    ]
    if isinstance(chance, float):
        notes.append(f"The largest class has {chance:.1%} of the scored examples.")
    return Table(f"scores_{task}", f"Scores on {task}", columns, rows, notes)


def _factor_table(records: Sequence[Record], found: dict[str, dict[str, Curve]]) -> Table:
    names = dict.fromkeys(name for own in found.values() for name in own)
    others = [name for name in names if not name.startswith(ENCODER)]
    several = ENCODER not in names
    rows: list[list[Cell]] = []
    for task, own in found.items():
        for reference in (name for name in own if name.startswith(ENCODER)):
            for size, summary in summaries(own[reference]).items():
                factors = [
                    data_factor(own[name], own[reference], size)
                    if name in own and _is_above(summary, about(records, task)["majority"])
                    else Factor(None, None, None)
                    for name in others
                ]
                which = [reference] * several
                rows.append([task, *which, size, summary.mean, *(c for f in factors for c in f)])
    columns = ["task", *["of"] * several, "examples", "encoder's score"]
    columns += [c for name in others for c in (name, f"{name} least", f"{name} most")]
    return Table(
        "data_factor",
        "Times the data that other features need for the encoder's score",
        columns,
        rows,
        (
            "Where the mean curve of the other features first has the encoder's mean score, "
            "straight over the logarithm of the size; least and most: from the ends of the 95 % "
            "intervals of both.",
            "> x: not reached with x times the data, which is all there is; ≤ x: reached at the "
            "smallest size already; –: the encoder's interval reaches down to the largest class, "
            "so there is nothing to reach.",
        ),
    )


def _unseen_table(records: Sequence[Record], found: dict[str, dict[str, Curve]]) -> Table:
    few, many = curves(records, "score_few_unseen"), curves(records, "score_many_unseen")
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    rows: list[list[Cell]] = []
    for task, own in found.items():
        for size in sorted(next(iter(own.values()))):
            at = [r for r in records if r["kind"] == "score" and r["task"] == task]
            at = [r for r in at if r["size"] == size]
            share, n_few, n_many = (
                sum(float(r[key] or 0) for r in at) / len(at)
                for key in ("unseen_share", "n_few_unseen", "n_many_unseen")
            )
            cells: list[Cell] = [task, size, share, round(n_few), round(n_many)]
            for name in names:
                for half in (few, many):
                    scores = half.get(task, {}).get(name, {}).get(size)
                    cells.append(summarize(scores).mean if scores else None)
            rows.append(cells)
    columns = ["task", "examples", "unseen", "n few", "n many"]
    columns += [f"{name}, {half}" for name in names for half in ("few", "many")]
    return Table(
        "unseen_words",
        "Scores on dev examples with few and with many words that training did not have",
        columns,
        rows,
        (
            "unseen: share of the words of a scored example that are in no training example, mean; "
            "few, many: up to the median share, and above it. Means over the seeds, n too.",
        ),
    )


def _diagnostic_table(records: Sequence[Record]) -> Table:
    rows = [r for r in records if r["kind"] == "diagnostic"]
    size = int(rows[0]["size"] or 0)
    found = curves([{**r, "kind": "score", "task": r["category"]} for r in rows], "correlation")
    n_of = {str(r["category"]): r["n"] for r in rows}
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    table: list[list[Cell]] = []
    for category, n in n_of.items():
        own = found.get(category, {})
        summary = [
            next(iter(summaries(own[name]).values())) if name in own else None for name in names
        ]
        table.append([category, n, *(cell for one in summary for cell in _cells(one))])
    seeds = len({r["seed"] for r in rows})
    return Table(
        "diagnostic",
        "Categories of the diagnostic set, by heads trained on all of snli",
        ["category", "n", *(column for name in names for column in _columns(name))],
        table,
        (
            f"Correlation R₃ of predicted and true classes (Gorodkin 2004), 0 = chance; a pair may "
            f"be of several categories. Trained on {size:,} examples, {seeds} seeds; "
            "mean, standard deviation and 95 % t interval over seeds, not over pairs.",
        ),
    )


def _feature_table(records: Sequence[Record]) -> Table:
    own = [r for r in records if r["kind"] == "features"]
    columns = ["weights", "task", "features", "layer", "width", "inputs"]
    columns += ["unknown_share", "n_absent", "n_cut", "n_texts"]
    sources = dict.fromkeys(f"{r['features']}: {r['source']}" for r in own)
    return Table(
        "features",
        "What the heads read",
        columns,
        [[r[column] for column in columns] for r in own],
        (
            "inputs: of a head; unknown_share: of the tokens; n_absent: sentences or words without "
            "a token, whose vector is 0; n_cut: texts longer than max_length.",
            *sources,
        ),
    )


def _is_above(summary: Summary, chance: Cell) -> bool:
    low = summary.mean if summary.low is None else summary.low
    return not isinstance(chance, float) or low > chance


def _columns(name: str) -> list[str]:
    return [name, f"{name} sd", f"{name} 95 %"]


def _cells(summary: Summary | None) -> list[Cell]:
    if summary is None:
        return [None] * 3
    interval = None if summary.low is None else f"{summary.low:.3f} to {summary.high:.3f}"
    return [summary.mean, summary.sd, interval]
