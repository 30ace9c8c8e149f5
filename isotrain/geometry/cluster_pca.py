"""Centre K clusters and remove R dominant directions of each. N embeddings, D width."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.kmeans import KMeans, cluster_means, straight_through
from isotrain.geometry.rows import has_scatter, have_scatter
from isotrain.geometry.spectra import capped_basis, leading_directions_of_each

MIN_ROWS = 4  # smaller clusters fall back to the statistics of all embeddings


class CenteredClusters(NamedTuple):
    """Embeddings in K clusters, and the mean that each cluster subtracts."""

    clustering: KMeans
    all_ND: Tensor  # embeddings: global statistics have the gradient of the batch's
    cluster_ND: Tensor  # embeddings: so do statistics of each cluster
    members: tuple[Tensor, ...]  # positions of each cluster's embeddings
    mean_D: Tensor
    mean_KD: Tensor
    centre_KD: Tensor  # the mean of a cluster, or the global one if it falls back
    falls_back: list[bool]
    sizes: list[float]  # number of embeddings behind the directions of each cluster
    has_scatter: bool  # a cloud without scatter is left unchanged

    def clouds(self) -> list[Tensor]:
        """The centred embeddings of each cluster, or all if it falls back; with gradient."""
        return [
            self.all_ND - self.mean_D if falls else self.cluster_ND[member_C] - mean_D
            for falls, member_C, mean_D in zip(
                self.falls_back, self.members, self.mean_KD, strict=True
            )
        ]


@dataclass(frozen=True)
class ClusterPCAStats:
    """What `apply_cluster_pca` uses, and the anchors that embeddings are assigned to."""

    anchor_KD: Tensor  # an embedding belongs to its nearest anchor
    centre_KD: Tensor  # what is subtracted from the embeddings of a cluster
    direction_KDR: Tensor  # orthonormal columns that are removed; zero columns past the cap
    counters: dict[str, Tensor]
    assignment_N: Tensor | None = None  # cluster of each fitted embedding


def center_clusters(
    x_ND: Tensor, clustering: KMeans, n_new: int | None = None, effective_rows: int = 0
) -> CenteredClusters:
    """Cluster means, global ones for a cluster of fewer than 4 embeddings or without scatter.

    `x_ND`: finite float32 or float64, N ≥ 1. Gradients flow through means to the last `n_new`
    embeddings (all, by default): see `straight_through`. `effective_rows` above 0 replaces N in
    the rules: statistics of a long queue then remove as many directions as those of batches.
    """
    n, n_clusters, assignment_N = len(x_ND), len(clustering.centroid_KD), clustering.assignment_N
    effective_rows = min(n, effective_rows or n)
    all_ND = cluster_ND = straight_through(x_ND, n_new)
    if n_clusters > 1:
        cluster_ND = straight_through(x_ND, n_new, assignment_N, n_clusters)
    mean_KD, count_K = cluster_means(cluster_ND, assignment_N, n_clusters)
    mean_D = all_ND.mean(dim=0)
    counts = [int(count) for count in count_K.tolist()]
    members = torch.split(assignment_N.argsort(stable=True), counts)
    scattered = have_scatter([x_ND.detach()[member_C] for member_C in members])
    sizes = [count * effective_rows / n for count in counts]
    falls_back = [
        size < MIN_ROWS or not varies for size, varies in zip(sizes, scattered, strict=True)
    ]
    falls_back_K = torch.tensor(falls_back, device=x_ND.device)
    return CenteredClusters(
        clustering,
        all_ND,
        cluster_ND,
        members,
        mean_D,
        mean_KD,
        torch.where(falls_back_K[:, None], mean_D, mean_KD),
        falls_back,
        [effective_rows if falls else size for size, falls in zip(sizes, falls_back, strict=True)],
        not all(falls_back) or has_scatter(x_ND.detach()),
    )


def fit_cluster_pca(
    clusters: CenteredClusters, n_components: int, rho: float = 0.25, exact: bool = False
) -> ClusterPCAStats:
    """Means and dominant directions of centred clusters.

    A cluster of n_c embeddings loses its min(R, floor(rho·(n_c − 1)), rank − 1) leading principal
    directions, or those of all embeddings if it falls back. Those of large clusters are iterated to
    a residual of 1e-3, unless `exact`. Means carry a gradient, directions do not. Counters record
    how often a rule applied.

    Rajaee and Pilehvar 2021, section 3; the caps and the fallback are ours.

    >>> from isotrain.geometry.kmeans import kmeans
    >>> x = torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]])
    >>> clusters = center_clusters(x, kmeans(x, 1))
    >>> fit_cluster_pca(clusters, n_components=1, rho=1.0).direction_KDR.abs().flatten().tolist()
    [1.0, 0.0]
    """
    falls_back, n = clusters.falls_back, len(clusters.all_ND)
    bases = _leading_directions(clusters, n_components + 1 if n_components > 0 else 0, exact)
    capped_bases = [
        capped_basis(basis_DS, rho, size)
        for basis_DS, size in zip(bases, clusters.sizes, strict=True)
    ]
    direction_KDR = torch.stack(capped_bases) * clusters.has_scatter
    counts = [len(member_C) for member_C in clusters.members]
    n_fallback = sum(count for count, falls in zip(counts, falls_back, strict=True) if falls)
    counters = {
        "rows_passed_through": torch.tensor(0.0 if clusters.has_scatter else float(n)),
        "rows_borrowed": torch.tensor(float(n_fallback) * clusters.has_scatter),
        "clusters_empty": torch.tensor(float(counts.count(0))),
        "directions_removed": direction_KDR.square().sum().round().float(),
    }
    centre_KD = clusters.centre_KD * clusters.has_scatter
    anchors_KD, assignment_N, *_ = clusters.clustering
    return ClusterPCAStats(anchors_KD, centre_KD, direction_KDR, counters, assignment_N)


def apply_cluster_pca(
    x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor, share: Tensor | float = 1.0
) -> Tensor:
    """Embeddings minus the mean and the dominant directions of their cluster, `[N, D]`.

    y = (x − m_c) − V_c·diag(r_c)·V_cᵀ(x − m_c), c the cluster, r the `share` that is taken out: of
    all directions, or of each `[K·R]`.

    >>> v_KDR = torch.tensor([[[1.0], [0.0]]])
    >>> stats = ClusterPCAStats(torch.zeros(1, 2), torch.zeros(1, 2), v_KDR, counters={})
    >>> apply_cluster_pca(torch.tensor([[3.0, 4.0]]), stats, torch.tensor([0])).tolist()
    [[0.0, 4.0]]
    """
    n_clusters, width, n_components = stats.direction_KDR.shape
    member_NK = torch.nn.functional.one_hot(assignment_N, n_clusters).to(x_ND.dtype)
    y_ND = x_ND - member_NK @ stats.centre_KD
    if n_components == 0:
        return y_ND
    # Directions of all clusters at once; each embedding keeps its own cluster's coefficients.
    basis_DF = stats.direction_KDR.transpose(0, 1).reshape(width, n_clusters * n_components)
    weight_NF = member_NK.repeat_interleave(n_components, dim=1) * share
    return y_ND - ((y_ND @ basis_DF) * weight_NF) @ basis_DF.T


def _leading_directions(clusters: CenteredClusters, n_directions: int, exact: bool) -> list[Tensor]:
    """Leading directions of each cluster, or of all; the last shows if anything else is left."""
    mean_KD, falls_back = clusters.mean_KD.detach(), clusters.falls_back
    x_ND = clusters.all_ND.detach()
    clouds = [x_ND[c] - mean_D for c, mean_D in zip(clusters.members, mean_KD, strict=True)]
    fitted_clouds = [x_CD for x_CD, falls in zip(clouds, falls_back, strict=True) if not falls]
    rest_ND = None
    if any(falls_back):  # then the first basis is global: offsets √n_c·(m_c − m) complete it
        fallback_clouds = [x_CD for x_CD, falls in zip(clouds, falls_back, strict=True) if falls]
        count_K = mean_KD.new_tensor([len(member_C) for member_C in clusters.members])
        rest_ND = torch.cat(
            [*fallback_clouds, count_K.sqrt()[:, None] * (mean_KD - clusters.mean_D.detach())]
        )
    bases = leading_directions_of_each(fitted_clouds, n_directions, rest_ND, exact)
    global_basis, cluster_bases = bases[0], iter(bases[len(bases) - len(fitted_clouds) :])
    return [global_basis if falls else next(cluster_bases) for falls in falls_back]
