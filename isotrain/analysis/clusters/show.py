"""Tables and plots of clusters."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from isotrain.analysis.charts import LinePlot, Picture, scatter
from isotrain.analysis.show import Frames, TableSpec
from isotrain.pages.charts import COLOURS, Spec, scale

FORMS = ("", "_centred", "_clustered")
CALLED = {"": "raw", "_centred": "centred", "_clustered": "centred inside clusters"}
KINDS = {"word": COLOURS[5], "symbol": COLOURS[1]}
ARRAYS = ("map", "frequency", "symbol", "cluster")  # of a layer: [M, 3] and [M]
LID = {"lid": "Euclidean", "lid_cosine_squared": "1 − cos"}


def _layers(frames: Frames) -> pd.DataFrame:
    """Every layer, with the cut of its silhouette and the sizes of its clusters."""
    layers, clusters = frames.of("layer"), frames.of("cluster")
    layers = layers.merge(frames.of("sample")[["weights", "cut"]], on="weights")
    if len(clusters):
        share = clusters.groupby(["weights", "layer"])["share"]
        sizes = share.agg(largest="max", smallest="min").reset_index()
        layers = layers.merge(sizes, on=["weights", "layer"], how="left")
    return layers


def _lids(frames: Frames) -> pd.DataFrame:
    """The dimension of each layer, followed by the mean, and that of static vectors."""
    mean = frames.of("lid mean").assign(layer="mean")
    return pd.concat([frames.of("lid"), mean, frames.of("static")])


def _averaged(frames: Frames) -> Iterator[str]:
    of_layers = ", ".join(dict.fromkeys(frames.of("lid mean")["of_layers"]))
    yield f"mean: over layers {of_layers}, its error the mean of theirs, the most it can be."


def _about(frames: Frames) -> Iterator[str]:
    sample = frames.of("sample").iloc[0]
    yield (
        f"{sample['corpus']}, {sample['text']}: {sample['n_rows']:,} embeddings of "
        f"{sample['n_types']:,} types; {sample['n_tokens']:,} tokens in all."
    )


def _islands(outcome: Any) -> Iterator[Picture]:
    """Each layer on three directions: by frequency, by symbol or word, and by cluster."""
    for weights, maps, points in _maps(outcome):
        charts = [spec for record in maps for spec in _of_layer(record)]
        yield Picture(
            f"islands_{weights}".replace(" ", "_"),
            f"Clusters on three principal directions ({weights})",
            charts,
            f"{points} on the principal directions 1 and 2, then 1 and 3: by occurrences of the "
            "type in the text, by symbol (no letter or digit) or word, and by cluster.",
        )


def _of_layer(record: Mapping[str, Any]) -> Iterator[Spec]:
    layer, silhouette = f"layer {record['layer']}", record["silhouette"]
    silhouette_text = "too few rows" if silhouette is None else f"silhouette {silhouette:.2f}"
    log_colour = {"type": "quantitative", "scale": {"type": "log", "scheme": "viridis"}}
    frequency = {"field": "occurrences of the type", "title": None, **log_colour}
    kind = {"field": "kind", "type": "nominal", "scale": scale([*KINDS], [*KINDS.values()])}
    cluster = {"field": "cluster", "type": "nominal", "scale": {"scheme": "tableau20"}}
    kinds = ["symbol" if is_symbol else "word" for is_symbol in record["symbol"]]
    order = np.argsort(-record["frequency"], kind="stable")  # rare ones on top
    counts = record["frequency"][order].tolist()
    clusters = {**cluster, "legend": {"columns": 6}}
    for direction in (2, 3):
        plane_M2 = record["map"][:, [0, direction - 1]]
        axes = f"{layer}, directions 1 and {direction}"
        variance = record["map_variance_1"] + record[f"map_variance_{direction}"]
        variance_title = f"{axes}: {variance:.0%} of the variance"
        yield scatter(plane_M2[order], variance_title, f"{axes}, by frequency", counts, frequency)
        yield scatter(plane_M2, f"{axes}: symbols and words", f"{axes}, by kind", kinds, kind)
        title = f"{axes}: k = {record['k']}, {silhouette_text}"
        yield scatter(plane_M2, title, f"{axes}, by cluster", record["cluster"].tolist(), clusters)


def _maps(outcome: Any) -> Iterator[tuple[str, list[Mapping[str, Any]], str]]:
    """Layers of each set of weights with their maps, and what the points are."""
    records = [r for r in outcome.records if r["kind"] == "layer" and "map_variance_1" in r]
    for weights in dict.fromkeys(r["weights"] for r in records):
        maps = [
            r | {key: outcome.arrays[f"{weights}/layer-{r['layer']}/{key}"] for key in ARRAYS}
            for r in records
            if r["weights"] == weights
        ]
        layers = ", ".join(str(record["layer"]) for record in maps)
        yield weights, maps, f"{len(maps[0]['map']):,} embeddings of layers {layers}"


TABLES = (
    TableSpec(
        "cosines",
        "S_inter and S_intra",
        of="layer",
        index={"layer": "layer"},
        values={"n_rows": "rows", "n_types": "types"}
        | {f"s_{kind}{form}": f"{kind}{form}" for kind in ("inter", "intra") for form in FORMS},
        notes=(
            _about,
            "S_inter: mean cosine of two types, one drawn instance each; S_intra: of two instances "
            "of a type, equal embeddings of which count once; ± 95 % CI over types. centred: less "
            "the mean of all; clustered: less the mean of their cluster, inside clusters, "
            "unweighted over them. Embeddings less the mean of their n have a mean cosine of about "
            "−1/(n − 1) by construction, which counts where a cluster is small.",
        ),
    ),
    TableSpec(
        "clusters",
        "Clusters",
        of=_layers,
        index={"layer": "layer"},
        values={
            "k": "k",
            "silhouette": "silhouette",
            "best_k": "best k",
            "largest": "largest cluster",
            "smallest": "smallest cluster",
        },
        notes=(
            "k-means with k from 2 to {analysis.k_max}; the silhouette of the best k is of at most "
            "{analysis.silhouette_rows:,} embeddings; below {analysis.cut} a layer is one cluster. "
            "Sizes are shares of embeddings.",
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
        of=_lids,
        index={"layer": "layer"},
        values={"n_rows": "rows", **LID},
        form=".2f",
        notes=(
            "Maximum likelihood with {analysis.n_neighbors} neighbours, mean and ± 95 % CI over "
            "queries. It depends on the number of embeddings: compare equal ones only.",
            "1 − cos is half of a squared distance of unit vectors: its value is half of the LID "
            "of that distance.",
            _averaged,
            "Published figures, one a model, are of 1 − cos. Cai et al. leave layer 0, the "
            "embedding output, out and call layer 1 layer 0.",
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
        of=_layers,
        y={"silhouette": "silhouette", "cut": "cut"},
        reference=("cut",),
    ),
    LinePlot(
        "lid",
        "local intrinsic dimension",
        "By layer: local intrinsic dimension.",
        of="lid",
        y=LID,
    ),
    _islands,
)
