"""Snapshots of an evaluation: the spectrum and a two-dimensional map of every cloud, as arrays.

A snapshot is `<run>/snapshots/step_00000100.npz`. A cloud is `<where>/<view>` as in keys
(`layer_03/tokens`, `pooled/after`); a group is the rows that clouds share: the view of a layer
(`cls`, `tokens`, `mean`), or `<site>_site`. M rows on a map (the same at every step), S
eigenvalues.

| array | shape, type | content |
| --- | --- | --- |
| `spectrum/<cloud>` | [S] float32 | eigenvalues of the covariance of all rows, descending |
| `map/<cloud>` | [M, 2] float32 | rows minus the mean, along the two leading principal directions |
| `cluster/<cloud>` | [M] int16 | k-means cluster of each row; of token clouds and sites |
| `n_rows/<cloud>` | [] int64 | rows that were measured |
| `label/<group>` | [M] float32 | class, or score, of the example that each row comes from |
| `index/<group>` | [M] int64 | its number among the examples of its split |
| `token/<group>` | [M] text | the token of each row; of groups of tokens |
| `frequency/<group>` | [M] int64 | how often that token occurs in the evaluation |
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from isotrain.runs.files import replacing
from isotrain.runs.keys import VIEWS

Arrays = dict[str, np.ndarray]


def group_of(where: str, view: str) -> str:
    """The group of a cloud."""
    return view if view in VIEWS else f"{where}_site"


def write_snapshot(run: Path, step: int, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write a snapshot into a run folder, replacing one of the same step atomically; its path."""
    path = (run / "snapshots") / f"step_{step:08d}.npz"
    path.parent.mkdir(exist_ok=True)
    with replacing(path, by_one=True) as file:
        np.savez(file, **dict(arrays))  # type: ignore[arg-type]
    return path


def snapshot_steps(run: Path) -> list[int]:
    """The steps at which snapshots were taken, in order; none is opened."""
    return sorted(
        int(path.stem.removeprefix("step_")) for path in (run / "snapshots").glob("step_*.npz")
    )


def thin_steps(steps: Sequence[int], most: int) -> list[int]:
    """At most `most` of the steps: the first, the last, and evenly spaced ones between.

    >>> thin_steps([0, 10, 20, 30, 40], 3)
    [0, 20, 40]
    """
    if len(steps) <= most:
        return list(steps)
    return [steps[round(k * (len(steps) - 1) / (most - 1))] for k in range(most)]


def read_snapshots(
    run: Path, most: int | None = None, also: Collection[int] = ()
) -> dict[int, Arrays]:
    """Snapshots of a run by step, in order: all, or at most `most` of them (see `thin_steps`).

    The steps in `also` are always read. Unreadable snapshots are left out.
    """
    steps = snapshot_steps(run)
    subset = steps if most is None else {*thin_steps(steps, most), *(s for s in also if s in steps)}
    snapshots: dict[int, Arrays] = {}
    for step in sorted(subset):
        if not (file := (run / "snapshots") / f"step_{step:08d}.npz").is_file():
            continue
        with (
            suppress(OSError, ValueError, EOFError, BadZipFile),
            file.open("rb") as stream,
            np.load(stream, allow_pickle=False) as arrays,
        ):
            snapshots[step] = dict(arrays)
    return snapshots
