"""Tables of the clusters analysis, made of its records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from isotrain.analysis.types import Outcome, Record, Table

FORMS = ("", "_centred", "_clustered")
LID = {
    "lid": "Euclidean",
    "lid_error": "± Euclidean",
    "lid_squared": "squared",
    "lid_cosine": "chord",
    "lid_cosine_error": "± chord",
    "lid_cosine_squared": "1 − cos",
    "lid_cosine_squared_error": "± 1 − cos",
}


def cluster_tables(outcome: Outcome) -> Iterator[Table]:
    """Cosines, clusters, what is in them, and LID; a row a layer, before and after side by side."""
    samples, layers = of_kind(outcome, "sample"), of_kind(outcome, "layer")
    names = dict.fromkeys(str(r["weights"]) for r in samples)
    lead = ("layer", "weights") if len(names) > 1 else ("layer",)
    yield _cosines(layers, samples, lead)
    yield _clusters(layers, samples, of_kind(outcome, "cluster"), lead)
    if inside := [r for r in layers if r["k"] > 1]:
        yield _inside(inside, lead)
        yield _contents(of_kind(outcome, "cluster"), lead)
    yield _dimensions(of_kind(outcome, "lid"), of_kind(outcome, "lid mean"), samples, lead)


def _cosines(layers: Sequence[Record], samples: Sequence[Any], lead: Sequence[str]) -> Table:
    kinds = [f"{kind}{form}" for kind in ("inter", "intra") for form in FORMS]
    keys = (*lead, "n_rows", "n_types", *(f"s_{kind}" for kind in kinds))
    return Table(
        "cosines",
        "S_inter and S_intra",
        (*lead, "rows", "types", *kinds),
        [_cells(r, keys) for r in _by_layer(layers)],
        [
            *map(_about, samples[:1]),
            "S_inter: mean cosine of two types, one drawn instance each; S_intra: of two instances "
            f"of a type.{_errors(layers)}",
            "centred: less the mean of all rows; clustered: less the mean of their cluster, inside "
            "clusters, unweighted over them.",
            *_repeated(layers),
        ],
    )


def _clusters(
    layers: Sequence[Record],
    samples: Sequence[Any],
    clusters: Sequence[Record],
    lead: Sequence[str],
) -> Table:
    keys = (*lead, "k", "silhouette", "best_k")
    return Table(
        "clusters",
        "Clusters",
        (*lead, "k", "silhouette", "best k", "largest cluster", "smallest cluster"),
        [
            [*_cells(r, keys), *_ends([c["share"] for c in clusters if _same(c, r)])]
            for r in _by_layer(layers)
        ],
        [
            f"k-means with k from 2 to {s['k_max']}; the silhouette of the best k is of at most "
            f"{s['silhouette_rows']:,} rows; below {s['cut']} a layer is one cluster. Sizes are "
            "shares of rows."
            for s in samples[:1]
        ],
    )


def _inside(layers: Sequence[Record], lead: Sequence[str]) -> Table:
    """The published mean over clusters, and by rows, which no small cluster can move."""
    columns = {
        f"s_{kind}{form}": f"{kind} {name}"
        for kind in ("inter", "intra")
        for form, name in (("_clustered", "mean"), ("_by_rows", "by rows"))
    }
    without = [
        f"layer {r['layer']} ({n} of S_{kind})"
        for r in _by_layer(layers)
        for kind in ("inter", "intra")
        if (n := r[f"s_{kind}_without_error"])
    ]
    notes = [
        "mean: unweighted over clusters, as published; by rows: weighted by them; smallest: rows "
        "of the smallest cluster; ± one standard error over types.",
        "Rows less the mean of their n have a mean cosine of about −1/(n − 1) by construction, "
        "−.5 for n = 3: where a cluster is small, read by rows.",
    ]
    if without:
        notes.append(f"Errors leave out clusters with too few types: {', '.join(without)}.")
    return Table(
        "inside_clusters",
        "S_inter and S_intra inside clusters",
        (*lead, "k", "smallest", *columns.values()),
        [
            [*_cells(r, (*lead, "k", "n_smallest")), *(_with_error(r, c) for c in columns)]
            for r in _by_layer(layers)
        ],
        notes,
    )


def _contents(clusters: Sequence[Record], lead: Sequence[str]) -> Table:
    keys = (*lead, "cluster", "n", "symbols", "n_types", "median_frequency", "tokens")
    return Table(
        "in_clusters",
        "What is in the clusters",
        (*lead, "cluster", "rows", "symbols", "types", "frequency", "tokens"),
        [_cells(r, keys) for r in _by_layer(clusters)],
        [
            "symbols: share of rows without a letter or digit; frequency: median occurrences "
            "in all of the text, over rows; tokens: the most frequent ones here."
        ],
    )


def _dimensions(
    lids: Sequence[Record],
    means: Sequence[Record],
    samples: Sequence[Any],
    lead: Sequence[str],
) -> Table:
    lines = [*_by_layer(lids), *({**r, "layer": "mean"} for r in means)]
    of_layers = ", ".join(dict.fromkeys(str(r["of_layers"]) for r in means))
    return Table(
        "lid",
        "Local intrinsic dimension",
        (*lead, "rows", *LID.values()),
        [_cells(r, (*lead, "n_rows", *LID)) for r in lines],
        [
            *(
                f"Maximum likelihood with {s['n_neighbors']} neighbours, mean over queries; its "
                "error is over queries. It depends on the number of rows: compare equal ones only."
                for s in samples[:1]
            ),
            "Euclidean: of distances; squared: the formula with their squares, exactly half. "
            "chord: of distances of unit rows, √(2(1 − cos)); 1 − cos: half of their squares, so "
            "half the value.",
            f"mean: over layers {of_layers}, its error the mean of theirs, the most it can be.",
            "Published figures, one a model, are of 1 − cos; here they stand beside the mean. Cai "
            "et al. leave layer 0, the embedding output, out and call layer 1 layer 0. Of vectors "
            "that are given, every layer counts.",
        ],
    )


def of_kind(outcome: Outcome, kind: str) -> list[Any]:
    """The records of a kind.

    >>> of_kind(Outcome([{"kind": "lid"}, {"kind": "layer"}], {}), "lid")
    [{'kind': 'lid'}]
    """
    return [record for record in outcome.records if record["kind"] == kind]


def _by_layer(records: Sequence[Record]) -> list[Record]:
    """By layer, so that before and after stand one below the other."""
    return sorted(records, key=lambda record: int(record["layer"] or 0))


def _cells(record: Record, columns: Sequence[str]) -> list[Any]:
    return [record.get(column) for column in columns]


def _with_error(record: Record, column: str) -> str | None:
    value, error = record[column], record[f"{column}_error"]
    if value is None:
        return None
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def _same(one: Record, other: Record) -> bool:
    return all(one[key] == other[key] for key in ("weights", "layer"))


def _ends(shares: Sequence[Any]) -> tuple[float | None, float | None]:
    return (max(shares), min(shares)) if shares else (None, None)


def _errors(layers: Sequence[Record]) -> str:
    """The largest standard errors of the cosines, in words."""
    most = []
    for kind in ("inter", "intra"):
        columns = [f"s_{kind}{form}_error" for form in FORMS]
        found = [float(str(r[c])) for r in layers for c in columns if r[c] is not None]
        most += [f"{max(found):.1g} of S_{kind}"] if found else []
    return f" Standard errors over types are at most {' and '.join(most)}." if most else ""


def _about(sample: Mapping[str, Any]) -> str:
    parts = f"{sample['n_rows']:,} rows of {sample['n_types']:,} types"
    if sample.get("n_texts"):
        parts += f", out of {sample['n_texts']:,} different texts"
    if sample.get("n_texts_of"):
        parts += f" of {sample['n_texts_of']:,}"
    return f"{sample['corpus']}, {sample['text']}: {parts}; {sample['n_tokens']:,} tokens in all."


def _repeated(layers: Sequence[Record]) -> list[str]:
    most = max((int(str(r["n_repeated"])) for r in layers), default=0)
    notes = []
    if most:
        notes.append(
            f"Equal rows of a type count once (up to {most:,} in a layer are left out): static "
            "vectors, tokens at one position in layer 0, equal beginnings in a causal encoder."
        )
    if any(r["s_intra"] is None for r in layers):
        notes.append(
            "No S_intra where no type has two different rows: of static vectors it is 1 by "
            "construction."
        )
    return notes
