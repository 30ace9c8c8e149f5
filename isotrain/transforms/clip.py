"""Dominant directions shrunk to the noise floor, as an isotropy layer. N embeddings, D width."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cluster_pca import CenteredClusters, ClusterPCAStats, apply_cluster_pca
from isotrain.geometry.spectra import noise_floor
from isotrain.transforms.cluster_pca import ClusterPCA, Strength
from isotrain.transforms.fitted import NonNegative, Positive, PositiveFloat, Share


@dataclass(frozen=True, kw_only=True)
class ClipStats(ClusterPCAStats):
    """Statistics of `ClusterPCA`, and how much of each direction goes."""

    removed_KR: Tensor  # share of each direction that is removed


class Clip(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: shrink dominant directions to the noise floor.

    As `ClusterPCA`, but directions are not deleted: each keeps the standard deviation of the noise
    floor, the mean variance per dimension outside of them. One that is weaker stays.

    Args:
        level: standard deviation of what is shrunk, in units of the noise floor's.

    The other arguments are those of `ClusterPCA`. Ours.

    >>> layer = Clip(width=2, n_components=1, rho=1.0, stats="batch")
    >>> layer(torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]])).abs().tolist()[0]
    [1.0, 1.0]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        n_clusters: Positive = 1,
        n_components: NonNegative = 3,
        level: PositiveFloat = 1.0,
        rho: Share = 0.25,
        strength: Strength = 1.0,
        seed: int = 0,
        **statistics: Any,
    ) -> None:
        super().__init__(width, n_clusters, n_components, rho, strength, seed, **statistics)
        self.level = level

    def empty(self, width: int) -> ClipStats:
        """Statistics in the shapes of the buffers."""
        removed_KR = torch.ones(self.n_clusters, self.n_components)
        return ClipStats(**vars(super().empty(width)), removed_KR=removed_KR)

    def fit_directions(self, clusters: CenteredClusters, exact: bool) -> ClipStats:
        """Dominant directions, and the share that brings each to the noise floor."""
        stats = super().fit_directions(clusters, exact)
        with torch.no_grad():
            floors = [
                noise_floor(cloud_CD, direction_DR, self.level)
                for cloud_CD, direction_DR in zip(
                    clusters.clouds(), stats.direction_KDR, strict=True
                )
            ]
        level_K, removed_KR = (torch.stack(values) for values in zip(*floors, strict=True))
        changes = {"centre_KD": self.centres(clusters, level_K), "removed_KR": removed_KR}
        return ClipStats(**{**vars(stats), **changes})

    def centres(self, clusters: CenteredClusters, level_K: Tensor) -> Tensor:
        """What each cluster subtracts, given the standard deviation of its noise floor."""
        return clusters.centre_KD * clusters.has_scatter

    def remove(self, x_ND: Tensor, stats: ClipStats, assignment_N: Tensor) -> Tensor:
        """The centred embeddings with shrunk directions."""
        return apply_cluster_pca(x_ND, stats, assignment_N, stats.removed_KR.flatten())
