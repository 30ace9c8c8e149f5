"""The transforms of Rajaei and Sheikhi, fitted once and frozen, and what they leave of a cloud.

M rows, D dimensions, K clusters, R directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.analysis.types import Cell
from isotrain.geometry.assignment import Assignment, Method
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cluster_pca import ClusterPCAStats, apply_cluster_pca, fit_cluster_pca
from isotrain.geometry.cluster_removal import Removal
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.metrics.partition_null import gaussian_null

OWN_POOLING, NONE = "own_pooling", "none"


class Recipe(NamedTuple):
    """What a transform takes away."""

    assign: Method | None  # None: one cluster, all rows
    removes: bool  # dominant directions, after the mean


RECIPES: Mapping[str, Recipe | None] = {
    OWN_POOLING: None,
    NONE: None,
    "mean": Recipe(None, False),
    "mean_pca": Recipe(None, True),
    "kmeans_mean": Recipe("kmeans", False),
    "kmeans_mean_pca": Recipe("kmeans", True),
    "gmm_mean": Recipe("gmm", False),
    "gmm_mean_pca": Recipe("gmm", True),
}


class Numbers(NamedTuple):
    """How many clusters and directions, and how they are found."""

    n_clusters: int
    n_components: int  # directions that a cluster loses
    n_directions: int  # that all rows lose, without clusters
    n_iterations: int
    rho: float


@dataclass(frozen=True)
class Fitted:
    """A frozen transform and what is known of its fit."""

    stats: ClusterPCAStats
    facts: Mapping[str, Cell]

    def __call__(self, x_MD: Tensor) -> Tensor:
        """Transformed rows; the result of a row does not depend on the others."""
        return apply_cluster_pca(x_MD, self.stats)


class Fitting(NamedTuple):
    """Which transforms are fitted, and how."""

    settings: Sequence[str]
    numbers: Numbers
    max_rows: int
    seed: int
    tell: Callable[[str], None]

    def fits(self, x_MD: Tensor, split: str) -> dict[str, Fitted | None]:
        """Each setting fitted on the rows of a split; None for the identity."""
        found: dict[str, Fitted | None] = {}
        for setting in self.settings:
            self.tell(f"fitting {setting} on {len(x_MD):,} rows of {split}")
            fitted = fit_transform(x_MD, setting, self.numbers, self.seed)
            if fitted is not None:
                known = {"fitted_on": split, "n_fitted": len(x_MD), **fitted.facts}
                fitted = replace(fitted, facts=known)
            found[setting] = fitted
        return found


def fit_transform(x_MD: Tensor, name: str, numbers: Numbers, seed: int) -> Fitted | None:
    """The statistics of a transform from the rows given, frozen; None where it is the identity.

    >>> numbers = Numbers(2, 1, 1, 10, 0.25)
    >>> fitted = fit_transform(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), "mean", numbers, seed=0)
    >>> fitted(torch.tensor([[9.0, 0.0]])).tolist()
    [[7.0, 0.0]]
    """
    recipe = RECIPES[name]
    if recipe is None:
        return None
    of_clusters = recipe.assign is not None
    n_clusters = numbers.n_clusters if of_clusters else 1
    n_removed = numbers.n_components if of_clusters else numbers.n_directions
    stats = fit_cluster_pca(
        x_MD,
        n_clusters,
        n_removed if recipe.removes else 0,
        Assignment(recipe.assign or "kmeans", n_iterations=numbers.n_iterations),
        Removal(rho=numbers.rho),
        generator=torch.Generator().manual_seed(seed),
        exact=True,
    )
    count_K = torch.bincount(stats.assignment_N, minlength=n_clusters)  # type: ignore[arg-type]
    facts: dict[str, Cell] = {
        "n_clusters": n_clusters,
        "n_directions": n_removed if recipe.removes else 0,  # of a cluster, where it is not small
        "smallest_cluster": int(count_K.min()),
        "directions_removed": int(stats.counters["directions_removed"]),
        "rows_borrowed": int(stats.counters["rows_borrowed"]),
    }
    return Fitted(stats._replace(assignment_N=None), facts)


def shapes(
    x_MD: Tensor, fits: Mapping[str, Fitted | None], facts: Mapping[str, Cell]
) -> Iterator[dict[str, Cell]]:
    """A record a transform: the shape of the rows after it, and what is known of its fit."""
    for setting, fitted in fits.items():
        if setting != OWN_POOLING:  # the rows of `none`
            y_MD = x_MD if fitted is None else fitted(x_MD)
            known = {} if fitted is None else fitted.facts
            yield {"kind": "cloud", **facts, "setting": setting, **known, **shape_of(y_MD)}


def shape_of(x_MD: Tensor) -> dict[str, Cell]:
    """How isotropic rows are: ln I(W) with what chance gives it, IsoScore and mean cosine.

    I(W) takes every eigenvector with both signs. `chance` is the median, and 95 % range, of ln
    I(W) of Gaussian clouds of the same N, D and rms norm; None where N or D is beyond the table.
    """
    n, d = x_MD.shape
    rms = float(x_MD.double().square().sum(dim=1).mean().sqrt())
    cloud = Cloud(x_MD)  # what the measures have in common is computed once
    log_value = float(partition(cloud, precision="mixed"))
    found: dict[str, Cell] = {
        "n_rows": n,
        "rms_norm": rms,
        "mean_cosine": float(mean_cosine(cloud)),
        "isoscore": float(isoscore(cloud, precision="mixed")),
        "partition": math.exp(log_value),
        "ln_partition": log_value,
    }
    try:
        band = gaussian_null(n, d, rms)
    except ValueError:  # beyond the stored grid
        return found | {"chance_low": None, "chance": None, "chance_high": None}
    return found | {"chance_low": band.low, "chance": band.median, "chance_high": band.high}
