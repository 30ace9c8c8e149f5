"""Cluster centring and removal of dominant directions, as one isotropy layer.

Mean, all-but-the-top, cluster mean and cluster PCA are this one class with other numbers: see
the presets in `conf/isotropy/`. N rows, D width, K clusters, R directions.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.kmeans import cluster_means, kmeans, nearest_centroid, reseed_empty
from isotrain.geometry.linalg import leading_directions_of_each
from isotrain.geometry.rows import has_scatter
from isotrain.transforms.fitted import EvalStats, FittedTransform, TrainStats
from isotrain.transforms.row_queue import Capacity


class ClusterPCAStats(NamedTuple):
    """What `fit_cluster_pca` estimates and `apply_cluster_pca` uses."""

    anchor_KD: Tensor  # a row belongs to its nearest anchor
    centre_KD: Tensor  # what is subtracted from the rows of a cluster
    direction_KDR: Tensor  # orthonormal columns that are removed; zero columns past the cap
    counters: dict[str, Tensor]
    assignment_N: Tensor | None = None  # of the rows it was fitted on


def fit_cluster_pca(
    x_ND: Tensor,
    n_clusters: int,
    n_components: int,
    *,
    rho: float = 0.25,
    min_rows: int = 4,
    effective_rows: int | None = None,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
    n_iterations: int = 3,
) -> ClusterPCAStats:
    """Clusters, their means and their dominant directions.

    Rows are clustered by k-means; a cluster of n_c rows subtracts its mean and loses its
    min(R, floor(rho·(n_c − 1)), rank − 1) leading principal directions. A cluster with fewer
    than `min_rows` rows, or without scatter, borrows the mean and directions of all rows; a
    cloud without scatter (one row, equal rows) is left as it is. The counters say how often.

    `x_ND`: finite float32 or float64 rows, N ≥ 1. `effective_rows` counts as N in these rules
    (cluster shares stay as they are): statistics fitted on a long queue then remove as many
    directions as the batches of training did. The means carry a gradient; assignments and
    directions do not.

    Rajaee and Pilehvar 2021, section 3; the caps and the borrowing are ours.

    >>> g = torch.Generator().manual_seed(0)
    >>> stats = fit_cluster_pca(torch.randn(64, 4, generator=g), 2, 1, generator=g)
    >>> stats.direction_KDR.shape
    torch.Size([2, 4, 1])
    """
    n = len(x_ND)
    detached_ND = x_ND.detach()
    clusters = kmeans(
        detached_ND, n_clusters, generator=generator, init=init, n_iterations=n_iterations
    )
    mean_KD, count_K = cluster_means(x_ND, clusters.assignment_N, n_clusters)
    effective = min(n, effective_rows or n)
    counts = [int(c) for c in count_K.tolist()]
    members = [detached_ND[clusters.assignment_N == c] for c in range(n_clusters)]
    borrows = [
        count * effective / n < min_rows or not has_scatter(rows_CD)
        for count, rows_CD in zip(counts, members, strict=True)
    ]
    mean_D = (count_K @ mean_KD) / n
    clouds = [x - mean_KD[c].detach() for c, x in enumerate(members)]
    alone = [c for c, borrow in enumerate(borrows) if not borrow]
    rest_ND = None
    if any(borrows):  # then the first basis is that of all rows, for the small clusters
        offset_KD = count_K.sqrt()[:, None] * (mean_KD - mean_D).detach()
        rest_ND = torch.cat([*(clouds[c] for c, borrow in enumerate(borrows) if borrow), offset_KD])
    # One direction more than is removed tells whether anything would be left.
    wanted = n_components + 1 if n_components > 0 else 0
    bases = leading_directions_of_each(
        [clouds[c] for c in alone], wanted, rest_ND, n_settled=n_components
    )
    owners = [n] * any(borrows) + [counts[c] for c in alone]
    bases = [
        _capped(basis_DS, rho, count * effective / n)
        for basis_DS, count in zip(bases, owners, strict=True)
    ]
    own = dict(zip(alone, bases[len(bases) - len(alone) :], strict=True))
    directions = [own.get(c, bases[0]) for c in range(n_clusters)]
    scattered = not all(borrows) or has_scatter(detached_ND)
    direction_KDR = torch.stack(directions) * scattered
    borrow_K = torch.tensor(borrows, device=x_ND.device)
    counters = {
        "rows_passed_through": 0 if scattered else n,
        "rows_borrowed": (n - sum(counts[c] for c in alone)) * scattered,
        "clusters_empty": counts.count(0),
        "directions_removed": float(direction_KDR.square().sum().round()),
    }
    return ClusterPCAStats(
        clusters.centroid_KD,
        torch.where(borrow_K[:, None], mean_D, mean_KD) * scattered,
        direction_KDR,
        {name: torch.tensor(float(value)) for name, value in counters.items()},
        clusters.assignment_N,
    )


def apply_cluster_pca(
    x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None = None
) -> Tensor:
    """Rows minus the mean and the dominant directions of their cluster, `[N, D]`.

    y = (x − m_c) − V_c V_cᵀ(x − m_c), c the given cluster, else that of the nearest anchor. The
    directions act on the right of the rows, so that with detached V the gradient is the
    projection itself.

    >>> stats = ClusterPCAStats(torch.zeros(1, 2), torch.zeros(1, 2),
    ...                         torch.tensor([[[1.0], [0.0]]]), {})
    >>> apply_cluster_pca(torch.tensor([[3.0, 4.0]]), stats).tolist()
    [[0.0, 4.0]]
    """
    n_clusters, width, n_components = stats.direction_KDR.shape
    if assignment_N is None:
        assignment_N = nearest_centroid(x_ND, stats.anchor_KD)
    member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    y_ND = x_ND - member_NK @ stats.centre_KD
    if n_components == 0:
        return y_ND
    # All clusters' directions side by side; each row keeps the coefficients of its own.
    basis_DF = stats.direction_KDR.transpose(0, 1).reshape(width, n_clusters * n_components)
    own_NF = member_NK.repeat_interleave(n_components, dim=1)
    return y_ND - ((y_ND @ basis_DF) * own_NF) @ basis_DF.T


class ClusterPCA(FittedTransform[ClusterPCAStats]):
    """Isotropy layer `[N, D] -> [N, D]`: cluster centring, then removal of directions.

    `FittedTransform` says where the statistics come from: the batch, as published, or a queue.

    Args:
        width: D.
        n_clusters: K; 1 = no clustering.
        n_components: R directions removed per cluster; 0 = centring only.
        rho: a cluster of n_c rows loses at most floor(rho·(n_c − 1)) directions.
        min_rows: smaller clusters borrow the statistics of all rows.
        stats: batch | queue, the source of training statistics.
        eval_stats: frozen | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).
        n_iterations: k-means iterations at most per fit.
        seed: of the first k-means start; later ones continue from the queue's centroids.

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Rajaee and Pilehvar 2021 (cluster-based); Mu and Viswanath 2018 (K = 1).

    >>> layer = ClusterPCA(width=2, n_clusters=1, n_components=0, stats="batch")
    >>> layer(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    warm_KD: Tensor
    is_warm: Tensor
    anchor_KD: Tensor
    centre_KD: Tensor
    direction_KDR: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        n_clusters: Annotated[int, Bounds(1)] = 8,
        n_components: Annotated[int, Bounds(0)] = 3,
        rho: Annotated[float, Bounds(above=0, most=1)] = 0.25,
        min_rows: Annotated[int, Bounds(1)] = 4,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
        n_iterations: Annotated[int, Bounds(1)] = 3,
        seed: int = 0,
    ) -> None:
        if n_components >= width:
            raise ValueError(
                f"n_components must be below width={width}, got {n_components}; lower n_components"
            )
        empty = ClusterPCAStats(
            torch.zeros(n_clusters, width),
            torch.zeros(n_clusters, width),
            torch.zeros(n_clusters, width, n_components),
            {},
        )
        super().__init__(width, empty, stats, eval_stats, queue_rows)
        self.n_clusters, self.n_components = n_clusters, n_components
        self.rho, self.min_rows, self.n_iterations = rho, min_rows, n_iterations
        self.seed = seed
        self.register_buffer("warm_KD", torch.zeros(n_clusters, width))
        self.register_buffer("is_warm", torch.tensor(False))

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> ClusterPCAStats:
        """Clusters and their statistics; frozen ones, under `stats="batch"`, cap as batches did."""
        as_batches = to_freeze and self.stats == "batch"
        return fit_cluster_pca(
            rows_ND,
            self.n_clusters,
            self.n_components,
            rho=self.rho,
            min_rows=self.min_rows,
            effective_rows=int(self.queue.batch_rows) if as_batches else None,
            n_iterations=100 if to_freeze else self.n_iterations,
            generator=torch.Generator().manual_seed(self.seed),
            init=self.warm_KD.to(rows_ND.dtype) if bool(self.is_warm) else None,
        )

    def transform(self, rows_ND: Tensor, stats: ClusterPCAStats, are_last: bool) -> Tensor:
        """Rows without the mean and the dominant directions of their cluster."""
        known = are_last and stats.assignment_N is not None
        own_N = stats.assignment_N[-len(rows_ND) :] if known else None  # type: ignore[index]
        return apply_cluster_pca(rows_ND, stats, own_N)

    def follow(self, rows_MD: Tensor) -> None:
        """Move the centroids that k-means starts from."""
        if self.n_clusters == 1:
            return
        generator = torch.Generator().manual_seed(self.seed)
        warm_KD = self.warm_KD.to(rows_MD.dtype) if bool(self.is_warm) else None
        found = kmeans(rows_MD, self.n_clusters, generator=generator, init=warm_KD, n_iterations=3)
        self.warm_KD.copy_(reseed_empty(rows_MD, found, generator))
        self.is_warm.fill_(True)


def _capped(basis_DS: Tensor, rho: float, effective_rows: float) -> Tensor:
    """The first columns of R + 1: floor(rho·(N − 1)) at most, and one less than the rank."""
    n_components = max(0, basis_DS.shape[1] - 1)
    cap = math.floor(rho * (effective_rows - 1) + 1e-9)
    rank = int(basis_DS.square().sum().round())
    kept_R = torch.arange(n_components, device=basis_DS.device) < min(cap, rank - 1)
    return basis_DS[:, :n_components] * kept_R
