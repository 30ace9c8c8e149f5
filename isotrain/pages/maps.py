"""The maps of snapshots as data of a page: aligned, packed, and few enough. M points of a map."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isotrain.pages.cloud_figures import Snapshots, class_names
from isotrain.results import as_json
from isotrain.snapshots import group_of

MOST_STEPS = 12
MOST_BYTES = 1_400_000  # of all points, as text
BYTES_OF_A_NUMBER = 2 * 4 / 3  # int16 in base64


def map_data(snapshots: Snapshots) -> dict[str, Any]:
    """What the maps of a page are drawn from; empty where no snapshot has a map.

    `steps`: those shown, the first, the last and some between, so that the page stays small.
    `clouds`: by name, the group of its rows and at each step, or None, `n` rows measured, `scale`,
    `xy` (base64 of int16 pairs; times scale/32767), `cluster` (base64 of uint8). `groups`: by name,
    `label`, `kind` (class | score), `index`, `token`, `frequency` of each row. `start`: the cloud
    to begin with.
    """
    names = sorted({k[4:] for arrays in snapshots.values() for k in arrays if k.startswith("map/")})
    if not names:
        return {}
    steps = _shown(snapshots, names)
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
    content = {"clouds": clouds, "groups": groups, "steps": steps, "n_steps": len(snapshots)}
    return content | {"start": _first(names)}


def _first(names: Sequence[str]) -> str:
    """What a reader sees first: behind an isotropy layer, else the CLS of the last layer."""
    found = [name for name in names if name.endswith("/after")]
    found += [name for name in reversed(names) if name.endswith("/cls")]
    return [*found, *names][0]


def aligned(points: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Maps `[M, 2]` by step, each turned or mirrored to lie closest to the one before it.

    The orthogonal 2×2 matrix Q that minimises ‖A Q − B‖ over the rows that both have (the first
    ones) is U Vᵀ of the singular value decomposition AᵀB = U S Vᵀ (Schönemann 1966). Distances
    within a map do not change. A map with points that are not finite is left out.

    >>> there = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> aligned({0: there, 5: there[:, ::-1] * [1, -1]})[5].round(9).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
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


def _shown(snapshots: Snapshots, names: Sequence[str]) -> list[int]:
    """The first step, the last and some evenly between, as many as fit."""
    steps = sorted(snapshots)
    points = max(
        sum(a[f"map/{n}"].size for n in names if f"map/{n}" in a) for a in snapshots.values()
    )
    n = min(MOST_STEPS, max(2, int(MOST_BYTES / (points * 2 * 4 / 3))))
    places = np.linspace(0, len(steps) - 1, min(n, len(steps))).round().astype(int)
    return [steps[i] for i in places]


def _group(snapshots: Snapshots, group: str) -> dict[str, Any]:
    """What is known of the rows of a group; the same at every step."""
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
