"""Cluster centring and removal of dominant directions, as one isotropy layer.

Mean, all-but-the-top, cluster mean and cluster PCA are this one class with other numbers: see
the presets in `conf/isotropy/`. N rows, D width, K clusters, R directions, M queue.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from isotrain.geometry.kmeans import cluster_means, kmeans, nearest_centroid
from isotrain.geometry.linalg import leading_directions
from isotrain.transforms.row_queue import RowQueue


class ClusterPCAStats(NamedTuple):
    """What `fit_cluster_pca` estimates and `apply_cluster_pca` uses."""

    anchor_KD: Tensor  # a row belongs to its nearest anchor
    centre_KD: Tensor  # what is subtracted from the rows of a cluster
    direction_KDR: Tensor  # orthonormal columns that are removed; zero columns past the cap
    counters: dict[str, Tensor]


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
    n_iterations: int = 10,
) -> ClusterPCAStats:
    """Clusters, their means and their dominant directions.

    Rows are clustered by k-means; a cluster of n_c rows subtracts its mean and loses
    min(R, floor(rho·(n_c − 1))) leading principal directions. A cluster with fewer than
    `min_rows` rows, or without scatter, borrows the mean and directions of all rows; a cloud
    without scatter (one row, equal rows) is left as it is. The counters say how often.

    `x_ND`: float32 or float64 rows, N ≥ 1. `effective_rows` counts as N in the two rules above
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
    assignment_N = clusters.assignment_N
    mean_KD, count_K = cluster_means(x_ND, assignment_N, n_clusters)
    mean_D = x_ND.mean(dim=0)

    with torch.no_grad():
        share = min(1.0, effective_rows / n) if effective_rows is not None else 1.0
        counts = [int(c) for c in count_K.tolist()]
        all_scatter = _has_scatter(detached_ND, mean_D)
        borrows, directions = [], []
        shared_DR: Tensor | None = None
        for c, count in enumerate(counts):
            members_CD = detached_ND if count == n else detached_ND[assignment_N == c]
            centred_CD = members_CD - mean_KD[c].detach()
            borrow = count * share < min_rows or not _has_scatter(members_CD, mean_KD[c])
            if borrow and shared_DR is None:
                shared_DR = _capped_directions(detached_ND - mean_D, n_components, rho, share)
            borrows.append(borrow)
            own_DR = shared_DR if borrow else None
            if own_DR is None:
                own_DR = _capped_directions(centred_CD, n_components, rho, share)
            directions.append(own_DR)
        borrow_K = torch.tensor(borrows, device=x_ND.device)
        direction_KDR = torch.stack(directions)
        n_borrowed = sum(c for c, b in zip(counts, borrows, strict=True) if b)
        counters = {
            "rows_passed_through": 0.0 if all_scatter else float(n),
            "rows_borrowed": float(n_borrowed) if all_scatter else 0.0,
            "clusters_empty": float(counts.count(0)),
            "directions_removed": float(direction_KDR.square().sum() / max(n_clusters, 1)),
        }
    centre_KD = torch.where(borrow_K[:, None], mean_D, mean_KD)
    if not all_scatter:
        centre_KD = torch.zeros_like(centre_KD)
        direction_KDR = torch.zeros_like(direction_KDR)
    return ClusterPCAStats(
        clusters.centroid_KD,
        centre_KD,
        direction_KDR,
        {name: torch.tensor(value) for name, value in counters.items()},
    )


def apply_cluster_pca(x_ND: Tensor, stats: ClusterPCAStats) -> Tensor:
    """Rows minus the mean and the dominant directions of their cluster, `[N, D]`.

    y = (x − m_c) − V_c V_cᵀ(x − m_c), c the cluster of the nearest anchor. The directions act
    on the right of the rows, so that with detached V the gradient is the projection itself.

    >>> stats = ClusterPCAStats(torch.zeros(1, 2), torch.zeros(1, 2),
    ...                         torch.tensor([[[1.0], [0.0]]]), {})
    >>> apply_cluster_pca(torch.tensor([[3.0, 4.0]]), stats).tolist()
    [[0.0, 4.0]]
    """
    n_clusters, width, n_components = stats.direction_KDR.shape
    assignment_N = nearest_centroid(x_ND, stats.anchor_KD)
    member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    y_ND = x_ND - member_NK @ stats.centre_KD
    if n_components == 0:
        return y_ND
    # All clusters' directions side by side; each row keeps the coefficients of its own.
    basis_DF = stats.direction_KDR.transpose(0, 1).reshape(width, n_clusters * n_components)
    own_NF = member_NK.repeat_interleave(n_components, dim=1)
    return y_ND - ((y_ND @ basis_DF) * own_NF) @ basis_DF.T


class ClusterPCA(nn.Module):
    """Isotropy layer `[N, D] -> [N, D]`: cluster centring, then removal of directions.

    In training mode the statistics come from the rows themselves (`stats="batch"`, as
    published) or from them and a queue of recent rows (`stats="queue"`). In evaluation mode they
    are frozen by `fit` (`eval_stats="frozen"`: a row's result does not depend on its
    batch-mates) or taken from the batch (`eval_stats="batch"`). `forward` changes no state;
    `observe` feeds the queue. Half precision is computed in float32 and cast back; float64
    stays.

    Args:
        width: D.
        n_clusters: K; 1 means no clustering.
        n_components: R directions removed per cluster; 0 centres only.
        rho: a cluster of n_c rows loses at most floor(rho·(n_c − 1)) directions.
        min_rows: smaller clusters borrow the statistics of all rows.
        stats: batch | queue, the source of training statistics.
        eval_stats: frozen | batch.
        queue_rows: M, how many recent rows are kept (M·D·4 bytes).
        n_iterations: k-means iterations at most per fit.
        seed: of the first k-means start; later starts continue from the queue's centroids.

    Raises:
        ValueError: an illegal number or name.
        RuntimeError: frozen evaluation before `fit`.

    Rajaee and Pilehvar 2021 (cluster-based); Mu and Viswanath 2018 (K = 1).

    >>> layer = ClusterPCA(width=4, n_clusters=1, n_components=1, stats="batch")
    >>> x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    >>> layer(x).mean(dim=0).abs().max().item() < 1e-6
    True
    """

    warm_KD: Tensor
    is_warm: Tensor
    anchor_KD: Tensor
    centre_KD: Tensor
    direction_KDR: Tensor
    is_fitted: Tensor

    def __init__(
        self,
        width: int,
        n_clusters: int = 8,
        n_components: int = 3,
        rho: float = 0.25,
        min_rows: int = 4,
        stats: Literal["batch", "queue"] = "queue",
        eval_stats: Literal["frozen", "batch"] = "frozen",
        queue_rows: int = 2048,
        n_iterations: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value, lowest in (
            ("width", width, 1),
            ("n_clusters", n_clusters, 1),
            ("n_components", n_components, 0),
            ("min_rows", min_rows, 1),
            ("n_iterations", n_iterations, 1),
        ):
            if value < lowest:
                raise ValueError(f"{name} must be at least {lowest}, got {value}")
        if not 0.0 < rho <= 1.0:
            raise ValueError(f"rho must lie in (0, 1], got {rho}; 0.25 is the default")
        if n_components >= width:
            raise ValueError(
                f"n_components={n_components} would remove every direction of width={width}; "
                "lower n_components"
            )
        if stats not in ("batch", "queue"):
            raise ValueError(f"stats must be batch or queue, got {stats!r}")
        if eval_stats not in ("frozen", "batch"):
            raise ValueError(f"eval_stats must be frozen or batch, got {eval_stats!r}")
        self.n_clusters, self.n_components = n_clusters, n_components
        self.rho, self.min_rows, self.n_iterations = rho, min_rows, n_iterations
        self.stats, self.eval_stats, self.seed = stats, eval_stats, seed
        self.counters: dict[str, Tensor] = {}
        self.queue = RowQueue(queue_rows, width)
        self.register_buffer("warm_KD", torch.zeros(n_clusters, width))
        self.register_buffer("is_warm", torch.tensor(False))
        self.register_buffer("anchor_KD", torch.zeros(n_clusters, width))
        self.register_buffer("centre_KD", torch.zeros(n_clusters, width))
        self.register_buffer("direction_KDR", torch.zeros(n_clusters, width, n_components))
        self.register_buffer("is_fitted", torch.tensor(False))

    def forward(self, x_ND: Tensor) -> Tensor:
        """Transformed rows; see the class for where the statistics come from."""
        if len(x_ND) == 0:
            return x_ND
        with torch.autocast(x_ND.device.type, enabled=False):
            rows_ND = x_ND if x_ND.dtype == torch.float64 else x_ND.float()
            if self.training:
                stats = self._estimate(self._with_queue(rows_ND))
            elif self.eval_stats == "batch":
                stats = self._estimate(rows_ND)
            else:
                stats = self._frozen(rows_ND.dtype)
            self.counters = stats.counters
            return apply_cluster_pca(rows_ND, stats).to(x_ND.dtype)

    @torch.no_grad()
    def observe(self, x_ND: Tensor) -> None:
        """Push rows into the queue and let the warm centroids follow."""
        self.queue.push(x_ND)
        rows_MD = self.queue.rows()
        if self.n_clusters > 1 and len(rows_MD) > 0:
            found = kmeans(
                rows_MD,
                self.n_clusters,
                generator=torch.Generator().manual_seed(self.seed),
                init=self._warm(rows_MD.dtype),
                n_iterations=3,
            )
            self.warm_KD.copy_(found.centroid_KD)
            self.is_warm.fill_(True)

    @torch.no_grad()
    def fit(self, x_ND: Tensor | None = None) -> None:
        """Freeze statistics of the given rows, or of the queue, for evaluation.

        Raises:
            RuntimeError: no rows were given and none were observed.
        """
        rows_ND = self.queue.rows() if x_ND is None else x_ND.detach()
        rows_ND = rows_ND.to(self.warm_KD.dtype)
        if len(rows_ND) == 0:
            raise RuntimeError(
                "fit needs rows: call observe(rows) during training first, or fit(rows)"
            )
        pushed = int(self.queue.last_push)
        effective = pushed if self.stats == "batch" and pushed > 0 else None
        with torch.autocast(rows_ND.device.type, enabled=False):
            stats = self._estimate(rows_ND, effective_rows=effective, n_iterations=100)
        self.anchor_KD.copy_(stats.anchor_KD)
        self.centre_KD.copy_(stats.centre_KD)
        self.direction_KDR.copy_(stats.direction_KDR)
        self.is_fitted.fill_(True)

    def _with_queue(self, rows_ND: Tensor) -> Tensor:
        if self.stats == "batch":
            return rows_ND
        return torch.cat([self.queue.rows().to(rows_ND.dtype), rows_ND])

    def _estimate(
        self, rows_ND: Tensor, effective_rows: int | None = None, n_iterations: int | None = None
    ) -> ClusterPCAStats:
        return fit_cluster_pca(
            rows_ND,
            self.n_clusters,
            self.n_components,
            rho=self.rho,
            min_rows=self.min_rows,
            effective_rows=effective_rows,
            generator=torch.Generator().manual_seed(self.seed),
            init=self._warm(rows_ND.dtype),
            n_iterations=n_iterations or self.n_iterations,
        )

    def _warm(self, dtype: torch.dtype) -> Tensor | None:
        """Where k-means continues; None before the first rows, for a start by seed."""
        return self.warm_KD.to(dtype) if bool(self.is_warm) else None

    def _frozen(self, dtype: torch.dtype) -> ClusterPCAStats:
        if not bool(self.is_fitted):
            raise RuntimeError(
                "frozen evaluation needs statistics: call fit() after observing rows (the "
                "trainer does so before each evaluation), or set eval_stats=batch"
            )
        return ClusterPCAStats(
            self.anchor_KD.to(dtype), self.centre_KD.to(dtype), self.direction_KDR.to(dtype), {}
        )


def _has_scatter(x_ND: Tensor, mean_D: Tensor) -> bool:
    """Whether rows differ by more than the rounding of their mean."""
    if len(x_ND) < 2:
        return False
    rounding = 8.0 * torch.finfo(x_ND.dtype).eps
    scatter = (x_ND - mean_D.detach()).square().sum()
    return bool(scatter > rounding**2 * x_ND.square().sum())


def _capped_directions(centred_ND: Tensor, n_components: int, rho: float, share: float) -> Tensor:
    """Leading directions, zero columns past floor(rho·(N·share − 1))."""
    cap = max(0, int(rho * (len(centred_ND) * share - 1)))
    basis_DR = centred_ND.new_zeros(centred_ND.shape[1], n_components)
    k = min(cap, n_components)
    basis_DR[:, :k] = leading_directions(centred_ND, k)
    return basis_DR
