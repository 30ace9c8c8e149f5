"""Local intrinsic dimension by maximum likelihood. Q queries, M neighbours."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.neighbours import nearest_neighbours

FLOOR = 1e-4  # least r_i/r_m that counts
ROUNDING = 64.0 * torch.finfo(torch.float64).eps  # of chords, and of equal distances


def lid(
    x: Tensor | Cloud,
    n_neighbors: Annotated[int, Field(ge=2)] = 100,
    distance: Literal["euclidean", "cosine"] = "euclidean",
    squared: bool = False,
    aggregate: Literal["mean", "harmonic"] = "mean",
    max_queries: Annotated[int, Field(ge=1)] | None = None,
    seed: int = 0,
) -> Tensor:
    """The `value` of `lid_estimate` of `x [N, D]`, whose options these are; in (0, ∞).

    Amsaleg et al. 2015.

    >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    >>> round(lid(x, n_neighbors=20).item(), 1)
    3.5
    """
    return lid_estimate(x, n_neighbors, distance, squared, aggregate, max_queries, seed)["value"]


@checked
def lid_estimate(
    x: Tensor | Cloud,
    n_neighbors: Annotated[int, Field(ge=2)] = 100,
    distance: Literal["euclidean", "cosine"] = "euclidean",
    squared: bool = False,
    aggregate: Literal["mean", "harmonic"] = "mean",
    max_queries: Annotated[int, Field(ge=1)] | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Mean local intrinsic dimension of `x [N, D]`: `value`, `standard_error`, `n_queries`.

    `value` in (0, ∞), up to D if isotropic, is the mean over queries q of LID(q) = −[(1/m) Σ_{i≤m}
    ln(r_i/r_m)]⁻¹, with r_i the distance from q to its i-th nearest neighbour and m =
    `n_neighbors`; `aggregate="harmonic"` gives 1/mean(1/LID), which is lower. Queries are all
    embeddings, or `max_queries` drawn with `seed`; neighbours are searched among all, exactly.
    Cosine distances are chords of unit vectors, √(2(1 − cos)): unchanged by rotation and vector
    length. No gradient.

    `squared=True` puts r² in the formula, exactly half the value: the convention of Cai et al.
    2021. scikit-dimension has (m − 1)/m of this formula in each point, aggregated harmonically.

    Biased high by m/(m − 2) where the density is even (harmonic: m/(m − 1)), and low for finite N
    where D is large: about 14 for a Gaussian with D = 20, N = 3,000 and m = 100.

    Ratios below 1e-4 count as 1e-4, and equal distances to all m neighbours as D. A query that
    coincides with all m has no dimension; `n_queries` are the others. The standard error, sd/√Q
    (harmonic: by the delta method), treats them as independent draws; it is infinite for one query.

    Raises:
        ValueError: N ≤ m; every query at distance zero from its neighbours.

    Amsaleg et al. 2015, with the estimator of Levina and Bickel 2004 (there 1/(m − 1)); harmonic:
    MacKay and Ghahramani 2005.

    >>> x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    >>> values = lid_estimate(x, n_neighbors=20, max_queries=100)
    >>> round(values["standard_error"].item(), 2), int(values["n_queries"])
    (0.09, 100)
    """
    x = Cloud.of(x).rows.detach()
    n, d = x.shape
    query_Q = torch.arange(n)
    if max_queries is not None and max_queries < n:
        query_Q = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:max_queries]
    if distance == "cosine":
        x = unit_rows(x)
    r_QM = nearest_neighbours(x, n_neighbors, query_Q.to(x.device)).distance_QK
    if distance == "cosine":  # parallel vectors of different length
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
