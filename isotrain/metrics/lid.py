"""Local intrinsic dimension by maximum likelihood.

N rows, D dimensions, Q queries, M neighbours.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.neighbours import nearest_neighbours

FLOOR = 1e-4  # least r_i/r_m that counts; 1e-8 between squared distances
ROUNDING = 64.0 * torch.finfo(torch.float64).eps  # of chords of unit rows, and of equal distances


def lid(
    x: Tensor,
    n_neighbors: int = 100,
    distance: Literal["euclidean", "cosine"] = "euclidean",
    squared: bool = False,
    aggregate: Literal["mean", "harmonic"] = "mean",
    max_queries: int | None = None,
    seed: int = 0,
) -> Tensor:
    """Mean local intrinsic dimension of the rows of `x [N, D]`; in (0, ∞), up to D if isotropic.

    LID(q) = −[(1/m) Σ_{i≤m} ln(r_i/r_m)]⁻¹ with r_i the distance from q to its i-th nearest other
    row and m = `n_neighbors`, averaged over the queries q: every row, or `max_queries` rows drawn
    without replacement by a CPU generator of `seed` (then the value depends on the order of rows).
    Neighbours are searched among all rows, exactly; see `isotrain.geometry.neighbours`. Unitless.

    - `distance="euclidean"`: unchanged by rotation, translation and scale.
    - `distance="cosine"`: the chord √(2(1 − cos)), i.e. the Euclidean distance of unit rows;
      unchanged by rotation and row length. A zero row stays at the origin.
    - `squared=True` puts squared distances in the formula (for cosine 1 − cos, half the squared
      chord): exactly half the value. The convention of Cai et al. 2021, whose released numbers
      are those of `distance="cosine", squared=True`; twice that is the usual dimension.
    - `aggregate="harmonic"`: 1/mean(1/LID) instead of the mean, which is above it.

    Ratios r_i/r_m below 1e-4 count as 1e-4, so a duplicate of the query costs 9.2 in the sum and
    not infinity (Cai et al. put 1e-8 for 1 − cos ≤ 0; relative to r_m the floor has no unit).
    Equal distances to all m neighbours mean infinity and count as D. A query whose m neighbours
    all coincide with it has no dimension and is left out.

    For finite m it is high by m/(m − 2) where the density is even (harmonic: m/(m − 1)); for finite
    N it is low where D is large: a Gaussian with D = 20 gives about 14 at N = 3,000, m = 100. It
    sees neither the mean cone nor, with Euclidean distances, the scale. Carries no gradient.

    Raises:
        ValueError: not `[N, D]`, N ≤ m, m < 2, a NaN or infinity, another `distance` or
            `aggregate`, `max_queries` < 1, or every query at distance zero from its neighbours.

    Levina and Bickel 2004 (there 1/(m − 1)); Amsaleg et al. 2015; Cai et al. 2021; MacKay and
    Ghahramani for the harmonic mean.

    >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    >>> round(lid(x, n_neighbors=20).item(), 1)
    3.5
    """
    return lid_estimate(x, n_neighbors, distance, squared, aggregate, max_queries, seed)["value"]


def lid_estimate(
    x: Tensor,
    n_neighbors: int = 100,
    distance: Literal["euclidean", "cosine"] = "euclidean",
    squared: bool = False,
    aggregate: Literal["mean", "harmonic"] = "mean",
    max_queries: int | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """`value` of `lid`, its `standard_error`, and `n_queries`, the queries that have a dimension.

    The standard error treats queries as independent: sd/√Q (for the harmonic mean by the delta
    method). That is the spread over draws of Q queries of a much larger cloud; of all N rows of
    the cloud it is a factor √(1 − Q/N) too wide, and neighbourhoods that overlap make it too
    narrow for a new cloud. One query has no spread: infinity.

    Raises:
        ValueError: as `lid`.

    >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    >>> found = lid_estimate(x, n_neighbors=20, max_queries=100)
    >>> round(found["standard_error"].item(), 2), int(found["n_queries"])
    (0.09, 100)
    """
    x = Cloud.of(x).rows
    n, d = x.shape
    if distance not in ("euclidean", "cosine"):
        raise ValueError(f"distance must be euclidean or cosine, got {distance!r}")
    if aggregate not in ("mean", "harmonic"):
        raise ValueError(f"aggregate must be mean or harmonic, got {aggregate!r}")
    if n_neighbors < 2:
        raise ValueError(f"n_neighbors must be at least 2, got {n_neighbors}: r_m/r_m is always 1")
    if n <= n_neighbors:
        raise ValueError(
            f"lid needs more rows than n_neighbors = {n_neighbors}, got {n}; "
            "give more rows or lower n_neighbors"
        )
    if max_queries is not None and max_queries < 1:
        raise ValueError(f"max_queries must be at least 1, or null for all rows, got {max_queries}")
    x = x.detach()
    query_Q = torch.arange(n)
    if max_queries is not None and max_queries < n:
        query_Q = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:max_queries]
    if distance == "cosine":
        x = unit_rows(x)
    r_QM = nearest_neighbours(x, n_neighbors, query_Q.to(x.device)).distance_QK
    if distance == "cosine":  # parallel rows of different length
        r_QM = r_QM.masked_fill(r_QM < ROUNDING, 0.0)
    r_QM = r_QM[r_QM[:, -1] > 0]
    if len(r_QM) == 0:
        raise ValueError(
            f"all of {len(query_Q)} rows are at distance zero from their {n_neighbors} nearest "
            "rows; drop repeated rows or raise n_neighbors"
        )
    inverse_Q = -(r_QM / r_QM[:, -1:]).clamp_min(FLOOR).log().mean(dim=1)
    inverse_Q = torch.where(inverse_Q > ROUNDING, inverse_Q, 1.0 / d) * (2.0 if squared else 1.0)
    part_Q = inverse_Q if aggregate == "harmonic" else 1.0 / inverse_Q
    mean, q = part_Q.mean(), len(part_Q)
    error = part_Q.std() / q**0.5 if q > 1 else torch.full_like(mean, torch.inf)
    if aggregate == "harmonic":
        mean, error = 1.0 / mean, error / mean.square()
    return {"value": mean, "standard_error": error, "n_queries": torch.full_like(mean, q)}
