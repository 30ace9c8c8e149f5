"""Tables and plots of clusters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd

from isotrain.analysis.clusters.maps import islands, rolls
from isotrain.analysis.plots import LinePlot
from isotrain.analysis.tables import Frames, TableSpec

FORMS = ("", "_centred", "_clustered")
CALLED = {"": "raw", "_centred": "centred", "_clustered": "centred inside clusters"}
LID = {
    "lid": "Euclidean",
    "lid_squared": "squared",
    "lid_cosine": "chord",
    "lid_cosine_squared": "1 − cos",
}


def layers(frames: Frames) -> pd.DataFrame:
    """Every layer, with the cut of its silhouette and the sizes of its clusters."""
    found, clusters = frames.of("layer"), frames.of("cluster")
    found = found.merge(frames.of("sample")[["weights", "cut"]], on="weights")
    if len(clusters):
        share = clusters.groupby(["weights", "layer"])["share"]
        ends = share.agg(largest="max", smallest="min").reset_index()
        found = found.merge(ends, on=["weights", "layer"], how="left")
    found = found.astype(object)
    return found.where(found.notna(), None)


def several(frames: Frames) -> pd.DataFrame:
    """Layers with more than one cluster."""
    found = frames.of("layer")
    return found[found["k"] > 1]


def lids(frames: Frames) -> pd.DataFrame:
    """The dimension of each layer, and behind them its mean."""
    return pd.concat([frames.of("lid"), frames.of("lid mean").assign(layer="mean")])


def about(frames: Frames) -> Iterator[str]:
    """What was drawn from what."""
    sample = frames.of("sample").iloc[0]
    parts = f"{sample['n_rows']:,} rows of {sample['n_types']:,} types"
    if sample.get("n_texts"):
        parts += f", out of {sample['n_texts']:,} different texts"
    if sample.get("n_texts_of"):
        parts += f" of {sample['n_texts_of']:,}"
    yield f"{sample['corpus']}, {sample['text']}: {parts}; {sample['n_tokens']:,} tokens in all."


def method(frames: Frames, note: str) -> Iterator[str]:
    """A note with fields of the first sample."""
    yield note.format_map(frames.of("sample").iloc[0].to_dict())


def repeated(frames: Frames) -> Iterator[str]:
    """Rows that are left out, and what that leaves without S_intra."""
    found = frames.of("layer")
    if most := max(found["n_repeated"]):
        yield (
            f"Equal rows of a type count once (up to {most:,} in a layer are left out): static "
            "vectors, tokens at one position in layer 0, equal beginnings in a causal encoder."
        )
    if found["s_intra"].isna().any():
        yield (
            "No S_intra where no type has two different rows: of static vectors it is 1 by "
            "construction."
        )


def without_error(frames: Frames) -> Iterator[str]:
    """Clusters that no error counts."""
    told = [
        f"layer {record['layer']} ({n} of S_{kind})"
        for record in several(frames).to_dict("records")
        for kind in ("inter", "intra")
        if (n := record[f"s_{kind}_without_error"])
    ]
    if told:
        yield f"Errors leave out clusters with too few types: {', '.join(told)}."


TABLES = (
    TableSpec(
        "cosines",
        "S_inter and S_intra",
        of="layer",
        index={"layer": "layer"},
        values={"n_rows": "rows", "n_types": "types"}
        | {f"s_{kind}{form}": f"{kind}{form}" for kind in ("inter", "intra") for form in FORMS},
        notes=(
            about,
            "S_inter: mean cosine of two types, one drawn instance each; S_intra: of two instances "
            "of a type; ± 95 % CI over types.",
            "centred: less the mean of all rows; clustered: less the mean of their cluster, inside "
            "clusters, unweighted over them.",
            repeated,
        ),
    ),
    TableSpec(
        "clusters",
        "Clusters",
        of=layers,
        index={"layer": "layer"},
        values={
            "k": "k",
            "silhouette": "silhouette",
            "best_k": "best k",
            "largest": "largest cluster",
            "smallest": "smallest cluster",
        },
        notes=(
            partial(
                method,
                note="k-means with k from 2 to {k_max}; the silhouette of the best k is of at most "
                "{silhouette_rows:,} rows; below {cut} a layer is one cluster. Sizes are shares of "
                "rows.",
            ),
        ),
    ),
    TableSpec(
        "inside_clusters",
        "S_inter and S_intra inside clusters",
        of=several,
        index={"layer": "layer"},
        values={"k": "k", "n_smallest": "smallest"}
        | {
            f"s_{kind}{form}": f"{kind} {name}"
            for kind in ("inter", "intra")
            for form, name in (("_clustered", "mean"), ("_by_rows", "by rows"))
        },
        notes=(
            "mean: unweighted over clusters, as published; by rows: weighted by them; smallest: "
            "rows of the smallest cluster; ± 95 % CI over types.",
            "Rows less the mean of their n have a mean cosine of about −1/(n − 1) by construction, "
            "−.5 for n = 3: where a cluster is small, read by rows.",
            without_error,
        ),
    ),
    TableSpec(
        "in_clusters",
        "What is in the clusters",
        of="cluster",
        index={"layer": "layer", "cluster": "cluster"},
        values={
            "n": "rows",
            "symbols": "symbols",
            "n_types": "types",
            "median_frequency": "frequency",
            "tokens": "tokens",
        },
        notes=(
            "symbols: share of rows without a letter or digit; frequency: median occurrences in "
            "all of the text, over rows; tokens: the most frequent ones here.",
        ),
    ),
    TableSpec(
        "lid",
        "Local intrinsic dimension",
        of=lids,
        index={"layer": "layer"},
        values={"n_rows": "rows", **LID},
        form=".2f",
        notes=(
            partial(
                method,
                note="Maximum likelihood with {n_neighbors} neighbours, mean over queries, ± 95 % "
                "CI over queries. It depends on the number of rows: compare equal ones only.",
            ),
            "Euclidean: of distances; squared: the formula with their squares, exactly half. "
            "chord: of distances of unit rows, √(2(1 − cos)); 1 − cos: half of their squares, so "
            "half the value.",
            lambda frames: [
                "mean: over layers "
                + ", ".join(dict.fromkeys(frames.of("lid mean")["of_layers"]))
                + ", its error the mean of theirs, the most it can be."
            ],
            "Published figures, one a model, are of 1 − cos; here they stand beside the mean. Cai "
            "et al. leave layer 0, the embedding output, out and call layer 1 layer 0. Of vectors "
            "that are given, every layer counts.",
        ),
    ),
)
PLOTS = (
    *(
        LinePlot(
            f"s_{kind}",
            title,
            f"By layer: {title}.",
            of="layer",
            y={f"s_{kind}{form}": name for form, name in CALLED.items()},
        )
        for kind, title in (
            ("inter", "S_inter: mean cosine of two types"),
            ("intra", "S_intra: mean cosine of two instances of a type"),
        )
    ),
    LinePlot(
        "silhouette",
        "silhouette of the best k, and where a layer counts as one cluster",
        "By layer: silhouette of the best k, and where a layer counts as one cluster.",
        of=layers,
        y={"silhouette": "silhouette", "cut": "cut"},
        reference=("cut",),
    ),
    LinePlot(
        "lid",
        "local intrinsic dimension",
        "By layer: local intrinsic dimension.",
        of="lid",
        y={name: LID[name] for name in ("lid", "lid_cosine", "lid_cosine_squared")},
    ),
    islands,
    rolls,
)
