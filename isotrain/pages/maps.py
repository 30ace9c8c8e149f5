"""Two-dimensional maps of embeddings through training, aligned step by step. M points of a map."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isotrain.pages.charts import (
    COLOURS,
    GREY,
    LOOK,
    WIDTH,
    Spec,
    by,
    chart,
    has_value,
    mark,
    only,
    quantity,
    tooltip,
)
from isotrain.results.series import End
from isotrain.runs.numbers import number
from isotrain.runs.snapshots import group_of

Snapshots = Mapping[int, Mapping[str, np.ndarray]]  # by step
SHAPES = ("circle", "square", "triangle", "diamond")
N_BINS = 6  # of labels that are scores
UNIT = 500  # of whole coordinates, from the middle to the border
KNOWN = ("label", "token", "index", "frequency", "occurs")  # of an embedding


def aligned(points: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Maps `[M, 2]` by step, each turned or mirrored to lie closest to the one before it.

    The orthogonal 2×2 matrix Q that minimises ‖A Q − B‖ over the rows that both have (the first
    ones) is U Vᵀ of the singular value decomposition AᵀB = U S Vᵀ (Schönemann 1966). Distances
    within a map do not change. A map with points that are not finite is left out.
    """
    maps: dict[int, np.ndarray] = {}
    previous_M2 = None
    for step, xy_M2 in sorted(points.items()):
        if not len(xy_M2) or not np.isfinite(xy_M2).all():
            continue
        xy_M2 = xy_M2.astype(float)
        if previous_M2 is not None:
            m = min(len(previous_M2), len(xy_M2))
            u, _, vt = np.linalg.svd(xy_M2[:m].T @ previous_M2[:m])
            xy_M2 = xy_M2 @ (u @ vt)
        maps[step] = previous_M2 = xy_M2
    return maps


def mapped(snapshots: Snapshots) -> list[str]:
    """The clouds with a map, the default one first.

    The default is the output of an isotropy layer, else CLS of the last layer.
    """
    names = sorted({k[4:] for arrays in snapshots.values() for k in arrays if k.startswith("map/")})
    first = [name for name in names if name.endswith("/after")]
    first += [name for name in reversed(names) if name.endswith("/cls")]
    return list(dict.fromkeys([*first[:1], *names]))


def map_chart(
    snapshots: Snapshots, clouds: Sequence[str], end: End, classes: Sequence[str]
) -> Spec:
    """Embeddings along their two leading principal directions, by cloud, step and colour.

    `clouds` as in `mapped`; `classes` are the names of labels, if known.
    """
    steps = sorted(snapshots)
    titles = [end.name if step == end.step else f"step {step}" for step in steps]
    values: list[dict[str, Any]] = []
    attributes: list[dict[str, Any]] = []
    for cloud in clouds:
        key = f"map/{cloud}"
        maps = aligned({s: arrays[key] for s, arrays in snapshots.items() if key in arrays})
        limit = max((float(np.abs(xy).max()) for xy in maps.values()), default=0.0) or 1.0
        for index, (step, title) in enumerate(zip(steps, titles, strict=True)):
            xy_M2, n = maps.get(step), int(snapshots[step].get(f"n_rows/{cloud}", 0))
            caption = f"{title}: no map, the embeddings have no scatter or are not finite"
            if xy_M2 is not None:
                caption = (
                    f"{title} · {len(xy_M2):,} of {max(n, len(xy_M2)):,} embeddings · axes to ±"
                )
                caption += number(limit)
            x, y = (
                ([], []) if xy_M2 is None else np.round(UNIT * xy_M2 / limit).astype(int).T.tolist()
            )
            cluster = snapshots[step].get(f"cluster/{cloud}", np.zeros(0, int)).tolist()
            group = group_of(*cloud.split("/"))
            values.append(
                {"cloud": cloud, "at": str(index), "caption": caption, "group": group}
                | {"x": x, "y": y, "cluster": cluster if x else []}
            )
    for group in dict.fromkeys(row["group"] for row in values):
        attributes += _attributes(snapshots, group, classes)
    axis = {"labels": False, "ticks": False, "title": None, "domain": False, "grid": False}
    position: Spec = {"scale": {"domain": [-1.05 * UNIT, 1.05 * UNIT], "zero": True}, "axis": axis}
    channel: Spec = {"field": "shown", "type": "nominal"}
    label = "isValid(datum[colour]) ? '' + datum[colour] : 'embedding'"
    label = f"colour == 'cluster' && isValid(datum.cluster) ? 'cluster ' + datum.cluster : {label}"
    lookup = {"data": {"values": attributes}, "key": "key", "fields": [*KNOWN]}
    last = str(titles.index(end.name) if end.name in titles else len(titles) - 1)
    encoding = {
        "x": quantity("x", **position),
        "y": quantity("y", **position),
        "color": {**channel, "scale": {"range": [*COLOURS]}},
        "shape": {**channel, "scale": {"range": [*SHAPES]}},
        "tooltip": tooltip("token", "index", "label", "occurs", "cluster"),
    }
    caption_encoding = {"text": {"field": "caption"}, "x": {"value": 0}, "y": {"value": 6}}
    return chart(
        values,
        {"text": {"expr": "cloud"}},
        "A map of embeddings on their two leading principal directions",
        [
            mark(
                "point",
                encoding,
                {"flatten": ["x", "y", "cluster"]},
                {"window": [{"op": "row_number", "as": "row"}]},
                {"calculate": "datum.group + '/' + datum.row", "as": "key"},
                {"lookup": "key", "from": lookup},
                {"calculate": label, "as": "shown"},
                has_value("x"),
                filled=True,
                size=22,
                opacity=0.75,
            ),
            mark("text", caption_encoding, align="left", fontSize=10.5, color=GREY),
        ],
        params=[by("cloud", clouds[0]), by("at", last), by("colour", "label")],
        transform=only(cloud="cloud", at="at"),
        height=WIDTH,
        usermeta={"embedOptions": {"renderer": "canvas"}},
    )


def _attributes(snapshots: Snapshots, group: str, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Attributes of each embedding of a group, the same at every step."""
    columns: dict[str, list[Any]] = {}
    for name in ("label", "token", "index", "frequency"):
        arrays = [a[f"{name}/{group}"] for a in snapshots.values() if f"{name}/{group}" in a]
        if arrays:
            columns[name] = arrays[0].tolist()
    if "label" in columns:
        columns["label"] = label_names(np.asarray(columns["label"]), classes)
    if "frequency" in columns:
        columns["occurs"] = [f"{n:,} times" for n in columns["frequency"]]
        columns["frequency"] = [_decade(n) for n in columns["frequency"]]
    rows = zip(*columns.values(), strict=True)
    return [
        {"key": f"{group}/{n}", **dict(zip(columns, row, strict=True))}
        for n, row in enumerate(rows, start=1)
    ]


def _decade(n: int) -> str:
    """Frequency range of a token, as text that sorts like the numbers."""
    low = min(10 ** (len(str(max(n, 1))) - 1), 1000)
    return f"{low} and more times" if low == 1000 else f"{low} to {10 * low - 1} times"


def label_names(labels: np.ndarray, classes: Sequence[str] = ()) -> list[str]:
    """The label of each embedding as text: its class, or the range of its score.

    >>> label_names(np.array([1.0, 0.0]), ["different", "same"]), label_names(np.array([2.0]))
    (['same', 'different'], ['label 2'])
    >>> label_names(np.array([0.0, 5.0]) + 0.5)
    ['0.50 to 1.33', '4.67 to 5.50']
    """
    finite = labels[np.isfinite(labels)]
    unique = np.unique(finite)
    if len(unique) <= len(COLOURS) and (unique == np.round(unique)).all():
        names = {k: classes[int(k)] if 0 <= k < len(classes) else f"label {k:g}" for k in unique}
        return [names.get(label, "not known") for label in labels]
    edges = np.linspace(finite.min(), finite.max(), N_BINS + 1)
    bins = np.clip(np.searchsorted(edges, labels, side="right") - 1, 0, N_BINS - 1)
    ranges = [f"{edges[k]:.2f} to {edges[k + 1]:.2f}" for k in bins]
    return [text if np.isfinite(x) else "not known" for text, x in zip(ranges, labels, strict=True)]


def map_steps(
    snapshots: Snapshots, clouds: Sequence[str], end: End, classes: Sequence[str]
) -> Spec:
    """The map of the first of the clouds at the first, a middle and the last snapshot."""
    spec = map_chart(snapshots, clouds[:1], end, classes)
    last = len(snapshots) - 1
    panels = []
    for index in sorted({0, last // 2, last}):
        panel = {key: value for key, value in spec.items() if key not in ("$schema", "config")}
        values = [row for row in spec["data"]["values"] if row["at"] == str(index)]
        panels.append({**panel, "data": {"values": values}, "params": [], "transform": []})
    params = [{**param, "value": param["value"]} for param in spec["params"]]
    return {"$schema": spec["$schema"], "params": params, "hconcat": panels, "config": LOOK}
