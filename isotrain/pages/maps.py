"""Maps of snapshots as page data: aligned and packed. M points of a map."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isotrain.pages.panels import COLOURS
from isotrain.results.series import End
from isotrain.runs.files import as_json
from isotrain.runs.snapshots import group_of

Snapshots = Mapping[int, Mapping[str, np.ndarray]]  # by step


def map_data(snapshots: Snapshots, end: End, classes: Sequence[str] = ()) -> dict[str, Any]:
    """What the maps of a page are drawn from; empty where no snapshot has a map.

    `steps`: of the snapshots, and `titles` of them. `classes`: names of labels, if known. `clouds`:
    by name, the group of its embeddings and at each step, or None, `n` that were measured, `scale`,
    `xy` (base64 of int16 pairs; times scale/32767), `cluster` (base64 of uint8). `groups`: by name,
    `label`, `kind` (class | score), `index`, `token`, `frequency` of each. `start`: the cloud to
    begin with, and `shown` the place of the step, which is that of `end`.
    """
    names = sorted({k[4:] for arrays in snapshots.values() for k in arrays if k.startswith("map/")})
    if not names:
        return {}
    steps = sorted(snapshots)
    clouds: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for name in names:
        where, view = name.split("/")
        group = group_of(where, view)
        groups[group] = _group(snapshots, group)
        points = {s: snapshots[s][f"map/{name}"] for s in steps if f"map/{name}" in snapshots[s]}
        clouds[name] = {"group": group, "at": [None] * len(steps)}
        for step, point in aligned(points).items():
            scale = float(np.abs(point).max()) or 1.0
            packed = np.round(point / scale * 32767).astype("<i2")
            cluster = snapshots[step].get(f"cluster/{name}")
            clouds[name]["at"][steps.index(step)] = {
                "n": int(snapshots[step].get(f"n_rows/{name}", len(point))),
                "scale": scale,
                "xy": _text(packed),
                "cluster": None if cluster is None else _text(cluster.astype("u1")),
            }
    return {
        "clouds": clouds,
        "groups": groups,
        "classes": list(classes),
        "steps": steps,
        "titles": [end.name if step == end.step else f"step {step}" for step in steps],
        "start": _first(names),
        "shown": steps.index(end.step) if end.step in steps else len(steps) - 1,
    }


def _first(names: Sequence[str]) -> str:
    """What a reader sees first: the output of an isotropy layer, else CLS of the last layer."""
    found = [name for name in names if name.endswith("/after")]
    found += [name for name in reversed(names) if name.endswith("/cls")]
    return [*found, *names][0]


def aligned(points: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Maps `[M, 2]` by step, each turned or mirrored to lie closest to the one before it.

    The orthogonal 2×2 matrix Q that minimises ‖A Q − B‖ over the rows that both have (the first
    ones) is U Vᵀ of the singular value decomposition AᵀB = U S Vᵀ (Schönemann 1966). Distances
    within a map do not change. A map with points that are not finite is left out.
    """
    found: dict[int, np.ndarray] = {}
    before = None
    for step, point in sorted(points.items()):
        if not len(point) or not np.isfinite(point).all():
            continue
        point = point.astype(float)
        if before is not None:
            m = min(len(before), len(point))
            u, _, vt = np.linalg.svd(point[:m].T @ before[:m])
            point = point @ (u @ vt)
        found[step] = before = point
    return found


def _group(snapshots: Snapshots, group: str) -> dict[str, Any]:
    """What is known of the embeddings of a group; the same at every step."""
    found: dict[str, Any] = {}
    for name in ("label", "index", "token", "frequency"):
        arrays = [a[f"{name}/{group}"] for a in snapshots.values() if f"{name}/{group}" in a]
        if arrays:
            found[name] = as_json(arrays[0].tolist())
            if name == "label":
                found["kind"] = "class" if class_names(arrays[0]) else "score"
    return found


def _text(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


def class_names(labels: np.ndarray | None) -> Sequence[float]:
    """The classes among labels; empty where they are scores: not whole, or too many."""
    names = [] if labels is None else np.unique(labels).tolist()
    return names if len(names) <= len(COLOURS) and all(name == int(name) for name in names) else []
