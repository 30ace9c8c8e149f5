"""Correlations, isotropy and accuracy of all settings as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from isotrain.analysis.offline_isotropy.transforms import NONE
from isotrain.analysis.sts_sets import PLACES, TEST_SETS
from isotrain.analysis.types import Cell, Record, Table

CLOUD = ("n_rows", "rms_norm", "mean_cosine", "isoscore", "ln_partition", "chance")
MAIN = "stsb"  # the set that is shown layer by layer first, where it was measured
MEAN = ("spearman", "pearson", "spearman_gain")  # what a mean over sets is taken of
MEANINGS = {
    "all": "all: one correlation over all pairs of a set",
    "mean": "mean: over the subsets of a set, each counting once",
    "weighted": "weighted: over the subsets, by their pairs",
}


def result_tables(records: Sequence[Record], notes: Sequence[str]) -> Iterator[Table]:
    """Scores and isotropy by layer at a glance; then every set, cloud, head and subset."""
    own, clouds = of_kind(records, "similarity"), of_kind(records, "cloud")
    told = [*(_scored(own) if own else ()), *_left_out(records), *notes]
    first = [record for record in own if record["aggregate"] == own[0]["aggregate"]]
    main = with_means(first)
    if own:
        shown = [record for record in main if record["set"] in _main_sets(main)]
        title = "Spearman × 100 by layer, with the gain over none"
        yield _by_layer("layers", title, shown, _with_gain, notes=told)
    yield _untransformed(clouds)
    if own:
        yield from _correlations(main)
    if other := [record for record in own if record["aggregate"] != own[0]["aggregate"]]:
        title = "Spearman of the other aggregates, times 100"
        keys = ("aggregate", "set", "layer")
        yield _by_layer("aggregates", title, with_means(other), _value("spearman"), keys)
    yield _clouds(clouds, () if own else told)
    if heads := of_kind(records, "head"):
        yield _heads(heads)
    if subsets := of_kind(records, "subset"):
        title = "Spearman of each subset, times 100"
        of_subset = ("set", "subset", "n_pairs", "layer")
        yield _by_layer("subsets", title, subsets, _value("spearman"), of_subset)


def _correlations(main: Sequence[Record]) -> Iterator[Table]:
    """Spearman, its gains and Pearson of every set."""
    title = "Spearman correlation of cosine and gold, times 100"
    yield _by_layer("spearman", title, main, _value("spearman"))
    gained = [record for record in main if record["setting"] != NONE]
    title = "Gain in Spearman over none, times 100, with its 95 % CI"
    note = (
        "CIs (± 1.96 standard errors) are paired: both settings on the same resampled pairs. The "
        "mean has none: STS-B holds pairs of the other sets."
    )
    yield _by_layer("gains", title, gained, _gain, notes=[note])
    title = "Pearson correlation of cosine and gold, times 100"
    yield _by_layer("pearson", title, main, _value("pearson"))


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


def with_means(own: Sequence[Record]) -> list[Record]:
    """The records, behind their means over the test sets where there are several of these.

    An aggregate that some test set lacks has no mean: it would be one over other sets.
    """
    tests = [name for name in sets_of(own) if name in TEST_SETS]
    groups: dict[tuple[Cell, ...], list[Record]] = {}
    for record in own:
        if record["set"] in tests:
            key = (record["weights"], record["aggregate"], record["layer"], record["setting"])
            groups.setdefault(key, []).append(record)
    means: list[Record] = [
        {
            **dict(zip(("weights", "aggregate", "layer", "setting"), key, strict=True)),
            "set": f"mean of {len(tests)} test sets",
            **{name: sum(number(one, name) for one in group) / len(group) for name in MEAN},
        }
        for key, group in groups.items()
        if len(group) == len(tests) > 1
    ]
    return [*means, *own]


def _main_sets(main: Sequence[Record]) -> list[Cell]:
    """The mean over test sets, and STS-B or else the first set."""
    names = list(dict.fromkeys(record["set"] for record in main))
    return [name for name in names if name not in PLACES] + [_main_set(main)]


def _main_set(own: Sequence[Record]) -> str:
    sets = sets_of(own)
    return MAIN if MAIN in sets else sets[0]


def _by_layer(
    name: str,
    title: str,
    own: Sequence[Record],
    cell: Callable[[Record], Cell],
    keys: Sequence[str] = ("set", "layer"),
    notes: Sequence[str] = (),
) -> Table:
    """Sets and layers down, settings across."""
    settings, several = distinct(own, "setting"), len(distinct(own, "weights")) > 1
    rows: dict[tuple[Cell, ...], dict[str, Cell]] = {}
    for record in own:
        key = (*(record[key] for key in keys), record["weights"])
        rows.setdefault(key, {})[str(record["setting"])] = cell(record)
    order = {key: n for n, key in enumerate(dict.fromkeys(key[:-1] for key in rows))}
    return Table(
        name,
        title,
        [*keys, *(["weights"] if several else []), *settings],
        [
            [*(key if several else key[:-1]), *(rows[key].get(setting) for setting in settings)]
            for key in sorted(rows, key=lambda key: order[key[:-1]])
        ],
        notes,
    )


def _value(column: str) -> Callable[[Record], Cell]:
    return lambda record: number(record, column)


def _gain(record: Record) -> Cell:
    error = number(record, "spearman_gain_error")
    gain = f"{number(record, 'spearman_gain'):+.2f}"
    return gain if math.isnan(error) else f"{gain} ± {1.96 * error:.2f}"


def _with_gain(record: Record) -> Cell:
    value = number(record, "spearman")
    if record["setting"] == NONE:
        return f"{value:.1f}"
    return f"{value:.1f} ({number(record, 'spearman_gain'):+.1f})"


def number(record: Record, column: str) -> float:
    """A number of a record; NaN where it has none."""
    value = record.get(column)
    return float(value) if isinstance(value, int | float) else math.nan


def _scored(own: Sequence[Record]) -> Iterator[str]:
    """What was scored, how, and with which error."""
    pairs = {str(r["set"]): r["n_pairs"] for r in own}
    yield "Pairs: " + ", ".join(f"{name} {pairs[name]:,}" for name in sets_of(own)) + "."
    yield "; ".join(MEANINGS[name] for name in distinct(own, "aggregate")) + "."
    errors = [e for r in own if math.isfinite(e := number(r, "spearman_error"))]
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


def _untransformed(own: Sequence[Record]) -> Table:
    """How isotropic the layers of one set are before any transform."""
    name = _main_set(own)
    shown = [r for r in own if (r["set"], r["setting"]) == (name, NONE)]
    return _isotropy(
        "isotropy", f"Isotropy of the token embeddings of {name} by layer, untransformed", shown
    )


def _clouds(own: Sequence[Record], notes: Sequence[str]) -> Table:
    """How isotropic every cloud is, before and after each transform."""
    title = "Token embeddings before (none) and after each transform"
    told = "n_fitted: rows the statistics come from; n_rows: rows measured (sst2: of train)."
    return _isotropy("clouds", title, own, ("set", "layer", "setting", "n_fitted"), [told, *notes])


def _isotropy(
    name: str,
    title: str,
    own: Sequence[Record],
    keys: Sequence[str] = ("layer",),
    notes: Sequence[str] = (),
) -> Table:
    columns = [*keys, *(["weights"] if len(distinct(own, "weights")) > 1 else []), *CLOUD]
    places = [tuple(record.get(key) for key in keys) for record in own]
    order = {place: n for n, place in enumerate(dict.fromkeys(places))}
    rows: list[list[Cell]] = [
        [*(record.get(key) for key in columns), _less_chance(record)]
        for _, record in sorted(zip(places, own, strict=True), key=lambda pair: order[pair[0]])
    ]
    return Table(
        name,
        title,
        [*columns, "less_chance"],
        rows,
        (
            "ln_partition: ln I(W) over eigenvectors with both signs, 0 = isotropic; it depends on "
            "N and the rms norm. chance: its median for Gaussian rows of the same N, D and norm; "
            "less_chance: ln I(W) less that.",
            "isoscore: in [0, 1], 1 = isotropic; it does not see the mean, which mean_cosine does.",
            *notes,
        ),
    )


def _less_chance(record: Record) -> Cell:
    return number(record, "ln_partition") - number(record, "chance")


def _heads(own: Sequence[Record]) -> Table:
    widest = max((number(r, "accuracy_high") - number(r, "accuracy_low")) / 2 for r in own)
    return _by_layer(
        "sst2",
        "SST-2: accuracy of a linear head on frozen, mean-pooled features",
        sorted(own, key=lambda record: distinct(own, "split").index(str(record["split"]))),
        _value("accuracy"),
        ("split", "n_train", "n_rows", "layer"),
        [
            "Logistic regression for each layer; transforms and head are fitted on train alone, "
            f"nothing is selected. 95 % intervals (Wilson) are ± {widest:.3f} at most, not those "
            "of differences; records.csv has each.",
        ],
    )
