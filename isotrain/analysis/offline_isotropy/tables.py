"""Correlations, isotropy and accuracy of all settings as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from isotrain.analysis.offline_isotropy.transforms import NONE
from isotrain.analysis.sts_sets import PLACES, TEST_SETS
from isotrain.analysis.types import Cell, Record, Table

CLOUD = ("n_fitted", "n_rows", "rms_norm", "mean_cosine", "isoscore", "ln_partition", "chance")
MEANINGS = {
    "all": "all: one correlation over all pairs of a set",
    "mean": "mean: over the subsets of a set, each counting once",
    "weighted": "weighted: over the subsets, by their pairs",
}


def result_tables(records: Sequence[Record], notes: Sequence[str]) -> Iterator[Table]:
    """Spearman by set and aggregate; Pearson and gains of the first one; clouds, heads, subsets."""
    own = of_kind(records, "similarity")
    told = [*(_scored(own) if own else ()), *_left_out(records), *notes]
    if own:
        columns, rows = _by_set(own, "spearman")
        title = "Spearman correlation of cosine and gold, times 100"
        yield Table("spearman", title, columns, rows, told)
        first = own[0]["aggregate"]
        main = [record for record in own if record["aggregate"] == first]
        columns, rows = _by_set(main, "pearson")
        title = "Pearson correlation of cosine and gold, times 100"
        yield Table("pearson", title, columns, rows)
        main = [record for record in main if record["setting"] != NONE]
        columns, rows = _by_set(main, "spearman_gain")
        yield Table(
            "gains",
            "Gain in Spearman over none, times 100, ± its standard error",
            columns,
            rows,
            (
                "Standard errors are paired: both settings on the same resampled pairs. The mean "
                "has none: STS-B holds pairs of the other sets.",
            ),
        )
    yield _clouds(of_kind(records, "cloud"), () if own else told)
    if heads := of_kind(records, "head"):
        yield _heads(heads)
    if subsets := of_kind(records, "subset"):
        yield _subsets(subsets)


def of_kind(records: Sequence[Record], kind: str) -> list[Record]:
    """The records of a kind."""
    return [record for record in records if record["kind"] == kind]


def distinct(records: Sequence[Record], key: str) -> list[str]:
    """The values of a key, in the order in which they first stand."""
    return list(dict.fromkeys(str(record[key]) for record in records))


def sets_of(records: Sequence[Record]) -> list[str]:
    """The sets that were measured, in the order of all sets."""
    found = {str(record["set"]) for record in records}
    return [name for name in PLACES if name in found]


def _by_set(own: Sequence[Record], column: str) -> tuple[list[str], list[list[Cell]]]:
    """Settings down, sets across, and the mean over test sets where there are several."""
    sets = sets_of(own)
    tests = [name for name in sets if name in TEST_SETS]
    keys = ["aggregate", "setting", "weights"][: 2 + (len(distinct(own, "weights")) > 1)]
    value = {tuple(str(record[key]) for key in (*keys, "set")): record for record in own}
    order = {key: n for n, key in enumerate(dict.fromkeys(found[:2] for found in value))}
    rows: list[list[Cell]] = []
    for key in sorted(dict.fromkeys(found[:-1] for found in value), key=lambda k: order[k[:2]]):
        found = {name: value.get((*key, name)) for name in sets}
        known = [_number(record, column) for name in tests if (record := found[name])]
        cells: list[Cell] = [_cell(found[name], column) for name in sets]
        if len(tests) > 1:
            mean = sum(known) / len(known) if len(known) == len(tests) else None
            is_gain = column.endswith("_gain")
            cells.append(f"{mean:+.2f}" if is_gain and mean is not None else mean)
        rows.append([*key, *cells])
    last = [f"mean of {len(tests)} test sets"] if len(tests) > 1 else []
    return [*keys, *sets, *last], rows


def _cell(record: Record | None, column: str) -> Cell:
    if record is None:
        return None
    value = _number(record, column)
    if not column.endswith("_gain"):
        return value
    return f"{value:+.2f} ± {_number(record, f'{column}_error'):.2f}"


def _number(record: Record, column: str) -> float:
    value = record[column]
    return float(value) if isinstance(value, int | float) else math.nan


def _scored(own: Sequence[Record]) -> Iterator[str]:
    """What was scored, how, and with which error."""
    pairs = {str(r["set"]): r["n_pairs"] for r in own}
    yield "Pairs: " + ", ".join(f"{name} {pairs[name]:,}" for name in sets_of(own)) + "."
    yield "; ".join(MEANINGS[name] for name in distinct(own, "aggregate")) + "."
    errors = [e for r in own if math.isfinite(e := _number(r, "spearman_error"))]
    if errors:
        yield f"Standard errors (bootstrap over pairs): {min(errors):.2f} to {max(errors):.2f}."
    if n_cut := {str(r["set"]): r["n_sentences_cut"] for r in own if r["n_sentences_cut"]}:
        told = ", ".join(f"{n} of {name}" for name, n in n_cut.items())
        yield f"Sentences cut to max_length: {told}."


def _left_out(records: Sequence[Record]) -> Iterator[str]:
    """Sets and aggregates that were not measured, and why."""
    if absent := distinct(of_kind(records, "set left out"), "set"):
        told = "records.csv says what was looked for"
        yield f"Not in this source, or without gold there: {', '.join(absent)}; {told}."
    left_out = of_kind(records, "aggregate left out")
    for name in distinct(left_out, "set"):
        mine = [r for r in left_out if r["set"] == name]
        reasons = "; ".join(distinct(mine, "reason"))
        yield f"{name} has no {' and no '.join(distinct(mine, 'aggregate'))}: {reasons}."


def _clouds(own: Sequence[Record], notes: Sequence[str]) -> Table:
    several = len(distinct(own, "weights")) > 1
    keys = ("set", "setting", *(("weights",) if several else ()), *CLOUD)
    order = {key: n for n, key in enumerate(dict.fromkeys((r["set"], r["setting"]) for r in own))}
    rows = sorted(own, key=lambda r: order[r["set"], r["setting"]])
    return Table(
        "clouds",
        "Token rows before (none) and after each transform",
        keys,
        [[record.get(key) for key in keys] for record in rows],
        (
            "n_fitted: rows the statistics come from; n_rows: rows measured (sst2: of train).",
            "ln_partition: ln I(W) over eigenvectors with both signs, 0 = isotropic; it depends on "
            "N and the rms norm. chance: its median for Gaussian rows of the same N, D and norm.",
            "isoscore: in [0, 1], 1 = isotropic; it does not see the mean, which mean_cosine does.",
            *notes,
        ),
    )


def _heads(own: Sequence[Record]) -> Table:
    keys = ("split", "setting", "weights", "n_train", "n_rows", "accuracy")
    columns = keys if len(distinct(own, "weights")) > 1 else (*keys[:2], *keys[3:])
    splits, settings = distinct(own, "split"), distinct(own, "setting")
    rows = sorted(
        own, key=lambda r: (splits.index(str(r["split"])), settings.index(str(r["setting"])))
    )
    return Table(
        "sst2",
        "SST-2: accuracy of a linear head on frozen, mean-pooled features",
        (*columns, "95 % interval"),
        [
            [
                *(record[key] for key in columns),
                f"{record['accuracy_low']:.4f} to {record['accuracy_high']:.4f}",
            ]
            for record in rows
        ],
        (
            "Logistic regression; transforms and head are fitted on train alone, nothing is "
            "selected. Intervals: Wilson's, for other rows; not those of differences.",
        ),
    )


def _subsets(own: Sequence[Record]) -> Table:
    """Spearman of each subset, settings across."""
    settings, weights = distinct(own, "setting"), distinct(own, "weights")
    value = {(r["set"], r["subset"], r["weights"], r["setting"]): r for r in own}
    keys = dict.fromkeys((r["set"], r["subset"]) for r in own)
    rows: list[list[Cell]] = []
    for key in keys:
        for weight in weights:
            found = [value[(*key, weight, setting)] for setting in settings]
            shown = [weight] if len(weights) > 1 else []
            rows.append([*key, *shown, found[0]["n_pairs"], *(r["spearman"] for r in found)])
    first = ["set", "subset", "weights"] if len(weights) > 1 else ["set", "subset"]
    columns = [*first, "n_pairs", *settings]
    return Table("subsets", "Spearman of each subset, times 100", columns, rows)
