"""Cluster PCA with the gradient of its directions, as an isotropy layer. N embeddings, D width."""

from dataclasses import dataclass

import torch
from torch import Tensor

from isotrain.geometry.cluster_pca import CenteredClusters, ClusterPCAStats
from isotrain.geometry.projector import leading_projector
from isotrain.transforms.cluster_pca import ClusterPCA


@dataclass(frozen=True)
class ProjectorStats(ClusterPCAStats):
    """Statistics of `ClusterPCA`, and in training its projectors with a gradient."""

    projector_KDD: Tensor | None = None


class FullGradientPCA(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: `ClusterPCA` with the exact gradient of its directions.

    The same values; directions, and not the means alone, carry a gradient, at the price of one
    [D, D] eigenproblem per cluster and step.

    Ours.

    >>> layer = FullGradientPCA(width=2, n_clusters=1, n_components=1, rho=1.0, stats="batch")
    >>> x = torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]], requires_grad=True)
    >>> layer(x)[0].abs().tolist()
    [0.0, 1.0]
    """

    def empty(self, width: int) -> ProjectorStats:
        """Statistics in the shapes of the buffers."""
        return ProjectorStats(**vars(super().empty(width)))

    def fit_directions(self, clusters: CenteredClusters, exact: bool) -> ProjectorStats:
        """Dominant directions, and their projectors if means carry a gradient."""
        stats, projector_KDD = super().fit_directions(clusters, exact), None
        if stats.centre_KD.requires_grad and self.n_components > 0:
            n_removed_K = stats.direction_KDR.square().sum(dim=(1, 2)).round().long().tolist()
            projectors = map(leading_projector, clusters.clouds(), n_removed_K)
            projector_KDD = torch.stack(list(projectors))
        return ProjectorStats(**vars(stats), projector_KDD=projector_KDD)

    def remove(self, x_ND: Tensor, stats: ProjectorStats, assignment_N: Tensor) -> Tensor:
        """(I − M_c)(x − m_c), with a gradient of M_c in training."""
        if stats.projector_KDD is None:
            return super().remove(x_ND, stats, assignment_N)
        member_NK = torch.nn.functional.one_hot(assignment_N, self.n_clusters).to(x_ND.dtype)
        y_ND = x_ND - member_NK @ stats.centre_KD
        projection_KND = (y_ND @ stats.projector_KDD) * member_NK.T[:, :, None]
        return y_ND - projection_KND.sum(dim=0)
