"""Pictures of the clusters analysis, made of its records and arrays alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from isotrain.analysis.clusters.maps import islands, read_maps, rolls
from isotrain.analysis.clusters.tables import of_kind
from isotrain.analysis.layer_figures import Line, layer_figure
from isotrain.analysis.types import Outcome, Picture, Record

FORMS = {"": "raw", "_centred": "centred", "_clustered": "centred inside clusters"}
LID = {
    "lid": "Euclidean",
    "lid_cosine": "chords of unit rows",
    "lid_cosine_squared": "1 − cos (as published)",
}


def cluster_pictures(outcome: Outcome) -> Iterator[Picture]:
    """Cosines, silhouettes and LID over layers; maps in two and three dimensions."""
    layers, lids = of_kind(outcome, "layer"), of_kind(outcome, "lid")
    for kind, title in (
        ("inter", "S_inter: mean cosine of two types"),
        ("intra", "S_intra: mean cosine of two instances of a type"),
    ):
        lines = _lines(layers, {f"s_{kind}{form}": name for form, name in FORMS.items()})
        yield Picture(
            f"s_{kind}", title.partition(":")[0], layer_figure(lines, title), f"By layer: {title}."
        )
    title = "silhouette of the best k, and where a layer counts as one cluster"
    lines = _lines(layers, {"silhouette": "silhouette"})
    for sample in of_kind(outcome, "sample")[:1]:
        at = sorted({float(r["layer"]) for r in layers})
        lines.append(Line("cut", at, [float(sample["cut"])] * len(at)))
    yield Picture("silhouette", "Silhouette", layer_figure(lines, title), f"By layer: {title}.")
    title = "local intrinsic dimension"
    figure = layer_figure(_lines(lids, LID), title)
    yield Picture("lid", "Local intrinsic dimension", figure, f"By layer: {title}.")
    for weights in dict.fromkeys(r["weights"] for r in layers):
        maps = read_maps(outcome.arrays, [r for r in layers if r["weights"] == weights])
        if not maps:
            continue
        name = str(weights).replace(" ", "_")
        points = f"{len(maps[0].point_M3):,} rows of layers {', '.join(str(m.layer) for m in maps)}"
        yield Picture(
            f"islands_{name}",
            f"Clusters on two principal directions ({weights})",
            islands(maps),
            f"{points} on the two leading principal directions: by occurrences of the type in the "
            "text, by symbol (no letter or digit) or word, and by cluster.",
        )
        yield Picture(
            f"rolls_{name}",
            f"Manifolds on three principal directions ({weights})",
            rolls(maps),
            f"{points} on the three leading principal directions: by occurrences of the type "
            "above, by symbol or word below. Rolls and bands show that frequency orders rows.",
        )


def _lines(records: Sequence[Record], columns: Mapping[str, str]) -> list[Line]:
    """A line for each column, and of a run for each of before and after, in one colour."""
    weights = list(dict.fromkeys(r["weights"] for r in records))
    return [
        Line.of(
            name if len(weights) == 1 else f"{own} {name}",
            [r for r in records if r["weights"] == own],
            column,
            f"{column}_error" if any(f"{column}_error" in r for r in records) else None,
        )._replace(colour=number)
        for number, (column, name) in enumerate(columns.items())
        for own in weights
    ]
