"""Tables of the clusters analysis, made of its records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from isotrain.analysis.types import Outcome, Record, Table

FORMS = ("", "_centred", "_clustered")
LID = [f"{name}{end}" for name in ("lid", "lid_cosine") for end in ("", "_error", "_squared")]


def cluster_tables(outcome: Outcome) -> Iterator[Table]:
    """Cosines, clusters, what is in them, and LID; a row a layer."""
    samples, layers = of_kind(outcome, "sample"), of_kind(outcome, "layer")
    clusters, lids = of_kind(outcome, "cluster"), of_kind(outcome, "lid")
    kinds = [f"{kind}{form}" for kind in ("inter", "intra") for form in FORMS]
    keys = ("weights", "layer", "n_rows", "n_types", *(f"s_{kind}" for kind in kinds))
    yield Table(
        "cosines",
        "S_inter and S_intra",
        ("weights", "layer", "rows", "types", *kinds),
        [_cells(r, keys) for r in layers],
        [
            *map(_about, samples[:1]),
            "S_inter: mean cosine of two types, one drawn instance each; S_intra: of two instances "
            f"of a type.{_errors(layers)}",
            "centred: less the mean of all rows; clustered: less the mean of their cluster, inside "
            "clusters, unweighted over them.",
            *_repeated(layers),
        ],
    )
    keys = ("weights", "layer", "k", "silhouette", "best_k")
    yield Table(
        "clusters",
        "Clusters",
        ("weights", "layer", "k", "silhouette", "best k", "largest cluster", "smallest cluster"),
        [[*_cells(r, keys), *_ends([c["share"] for c in clusters if _same(c, r)])] for r in layers],
        [
            f"k-means with k from 2 to {s['k_max']}; the silhouette of the best k is of at most "
            f"{s['silhouette_rows']:,} rows; below {s['cut']} a layer is one cluster. Sizes are "
            "shares of rows."
            for s in samples[:1]
        ],
    )
    keys = ("weights", "layer", "cluster", "n", "symbols", "n_types", "median_frequency", "tokens")
    if clusters:
        yield Table(
            "in_clusters",
            "What is in the clusters",
            ("weights", "layer", "cluster", "rows", "symbols", "types", "frequency", "tokens"),
            [_cells(r, keys) for r in clusters],
            [
                "symbols: share of rows without a letter or digit; frequency: median occurrences "
                "in all of the text, over rows; tokens: the most frequent ones here."
            ],
        )
    means = [{**r, "layer": "mean"} for r in of_kind(outcome, "lid mean")]
    yield Table(
        "lid",
        "Local intrinsic dimension",
        ("weights", "layer", "rows", *LID),
        [_cells(r, ("weights", "layer", "n_rows", *LID)) for r in [*lids, *means]],
        [
            *(
                f"Maximum likelihood with {s['n_neighbors']} neighbours, mean over queries; its "
                "error is over queries. It depends on the number of rows: compare equal ones only."
                for s in samples[:1]
            ),
            "squared: the formula with squared distances, exactly half. mean: over layers from 1 "
            "(of one layer: that one).",
            "Published figures, one a model, are lid_cosine_squared; here they stand beside the "
            "mean. Cai et al. leave layer 0, the embedding output, out and call layer 1 layer 0.",
        ],
    )


def of_kind(outcome: Outcome, kind: str) -> list[Any]:
    """The records of a kind.

    >>> of_kind(Outcome([{"kind": "lid"}, {"kind": "layer"}], {}), "lid")
    [{'kind': 'lid'}]
    """
    return [record for record in outcome.records if record["kind"] == kind]


def _cells(record: Record, columns: Sequence[str]) -> list[Any]:
    return [record.get(column) for column in columns]


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
