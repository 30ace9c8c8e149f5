"""Tables of scores over training sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from isotrain.analysis.data_scale.curves import (
    ENCODER,
    Curve,
    Factor,
    Point,
    about,
    curves,
    data_factor,
    measure,
    named,
)
from isotrain.analysis.data_scale.head import MOST_EPOCHS
from isotrain.analysis.types import Cell, Record, Table
from isotrain.analysis.weights import AFTER

HEAD = (
    "The same head on all features: standardised by its training rows, trained on four fifths of "
    "the examples of a class, stopped by the loss on the fifth"
)
HELD_OUT = {  # why that fifth is, or is not, of other texts
    "sst2": " Phrases of one sentence may stand on both sides of that cut: heads may stop late.",
    "rte": " Pairs of one premise stand on one side of that cut.",
    "snli": " Pairs of one premise stand on one side of that cut.",
}
INTERVALS = "for other seeds and other dev examples together (crossed), within the score's range"
RUN_SAW = (
    "after: where the run was trained on this very task, its encoder has seen these training "
    "examples, the held-out fifth among them; dev is not among them, yet may have chosen the "
    "run's checkpoint."
)


def scale_tables(records: Sequence[Record]) -> Iterator[Table]:
    """Scores of each task, factors of data, unseen words, diagnostic categories, features."""
    found = curves(records)
    for task, own in found.items():
        scores = [r for r in records if r["kind"] == "score" and r["task"] == task]
        yield _score_table(task, own, about(records, task), scores)
    yield _factor_table(records, found)
    yield _unseen_table(records, found)
    if any(r["kind"] == "diagnostic" for r in records):
        yield _diagnostic_table(records)
    yield _feature_table(records)


def _score_table(
    task: str, own: dict[str, Curve], facts: Record, scores: Sequence[Record]
) -> Table:
    columns = ["examples", *(column for name in own for column in _columns(name))]
    grid = sorted({size for curve in own.values() for size in curve})
    rows = [
        [size, *(c for curve in own.values() for c in _cells(curve.get(size)))] for size in grid
    ]
    seeds = sorted({point.n for curve in own.values() for point in curve.values()})
    capped = [r for r in scores if r["stopped"] == "cap"]
    chance = facts["majority"]
    notes = [
        f"{measure(task)} on {facts['n_scored']:,} examples of the dev split of {task}; "
        f"n = {', '.join(map(str, seeds))} seeds, which draw the training examples (nested) and "
        "random vectors, and train the head; mean and standard deviation over them, 95 % interval "
        f"{INTERVALS}. All of them have the same examples at the last size.",
        f"{HEAD}.{HELD_OUT.get(task, '')} {len(capped):,} of {len(scores):,} heads "
        f"({len(capped) / max(1, len(scores)):.0%}) were stopped by the cap of {MOST_EPOCHS} "
        f"epochs, the others by that loss. {task} has {facts['n_train']:,} training examples here.",
    ]
    if any(r["weights"] == AFTER for r in scores):
        notes.append(RUN_SAW)
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
            for size, point in own[reference].items():
                factors = [
                    data_factor(own[name], own[reference], size)
                    if name in own and _is_above(point, about(records, task)["majority"])
                    else Factor(None, None, None)
                    for name in others
                ]
                which = [reference] * several
                rows.append([task, *which, size, point.mean, *(c for f in factors for c in f)])
    columns = ["task", *["of"] * several, "examples", "encoder's score"]
    columns += [c for name in others for c in (name, f"{name} least", f"{name} most")]
    return Table(
        "data_factor",
        "Times the data that other features need for the encoder's score",
        columns,
        rows,
        (
            "Where the mean curve of the other features first has the encoder's mean score, "
            "straight over the logarithm of the size, both curves made to rise (isotonic means); "
            f"least and most: from the ends of the 95 % intervals of both, {INTERVALS}.",
            "> x: not reached with x times the data, which is all there is; ≤ x: reached at the "
            "smallest size already; –: not reached with less than 2 times the data there are, or "
            "the encoder's interval reaches down to the largest class, so there is nothing to "
            "reach.",
        ),
    )


def _unseen_table(records: Sequence[Record], found: dict[str, dict[str, Curve]]) -> Table:
    scores = [r for r in records if r["kind"] == "score"]
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    halves = ("score_few_unseen", "score_many_unseen")
    rows: list[list[Cell]] = []
    for task, own in found.items():
        for size in next(iter(own.values())):
            at = [r for r in scores if (r["task"], r["size"]) == (task, size)]
            facts = (_mean(at, key) for key in ("unseen_share", "n_few_unseen", "n_many_unseen"))
            share, n_few, n_many = (value or 0.0 for value in facts)
            cells: list[Cell] = [task, size, share, round(n_few), round(n_many)]
            for name in names:
                of_name = [r for one, r in named(at) if one == name]
                cells += [_mean(of_name, half) for half in halves]
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
    found = curves(records, "category", by="category")
    size, seeds = int(rows[0]["size"] or 0), len({r["seed"] for r in rows})
    n_of = {str(r["category"]): r["n"] for r in rows}
    names = list(dict.fromkeys(name for own in found.values() for name in own))
    table: list[list[Cell]] = []
    for category, n in n_of.items():
        own = found.get(category, {})
        points = [own[name][size] if name in own else None for name in names]
        table.append([category, n, *(cell for point in points for cell in _cells(point))])
    return Table(
        "diagnostic",
        f"Categories of the diagnostic set, by heads trained on the largest size ({size:,})",
        ["category", "n", *(column for name in names for column in _columns(name))],
        table,
        (
            f"Correlation R₃ of predicted and true classes (Gorodkin 2004), 0 = chance; a pair may "
            f"be of several categories. Trained on {size:,} examples of snli, {seeds} seeds; mean "
            "and standard deviation over seeds, 95 % interval for other seeds and other pairs "
            "together (crossed).",
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
            "inputs: of a head; unknown_share: of the tokens; n_absent: sentences or words "
            "without a token (of word vectors: without a known one), whose vector is 0; n_cut: "
            "texts longer than max_length.",
            "Means over tokens leave [UNK] out where the vectors are static or random; random ones "
            "are drawn anew for each seed, the first draw is named here.",
            *sources,
        ),
    )


def _is_above(point: Point, chance: Cell) -> bool:
    return not isinstance(chance, float) or point.ends[0] > chance


def _mean(records: Sequence[Record], key: str) -> float | None:
    known = [float(value) for r in records if (value := r[key]) is not None]
    return fmean(known) if known else None


def _columns(name: str) -> list[str]:
    return [name, f"{name} sd", f"{name} 95 %"]


def _cells(point: Point | None) -> list[Cell]:
    if point is None:
        return [None] * 3
    interval = None if point.low is None else f"{point.low:.3f} to {point.high:.3f}"
    return [point.mean, point.sd, interval]
