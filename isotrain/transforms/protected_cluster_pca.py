"""Cluster PCA with protected directions, as an isotropy layer. N embeddings, D width."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cluster_pca import ClusterPCAStats
from isotrain.geometry.kmeans import straight_through
from isotrain.geometry.protected import (
    N_BETWEEN,
    ProtectedDirections,
    fit_protected,
    protected_coordinates,
    returned_share,
    without_protected,
)
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.fitted import NonNegative, Positive, PositiveFloat, Share


@dataclass(frozen=True, kw_only=True)
class ProtectedStats(ClusterPCAStats):
    """Statistics of the rest, and the protected directions."""

    spared_mean_D: Tensor
    spared_DJ: Tensor
    kept_J: Tensor  # share of each that is restored

    def protected(self) -> ProtectedDirections:
        """The protected directions, about their mean."""
        return ProtectedDirections(self.spared_mean_D, self.spared_DJ)


class ProtectedClusterPCA(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: cluster PCA with protected directions.

    Protected are global leading directions, or the between-class directions of the training
    labels. Cluster PCA acts on the rest; they are added back, shrunk to its noise floor, not
    deleted: what fine-tuning has put there is a label.

    Args:
        n_leading: protected leading directions of all embeddings.
        protect_labels: the between-class directions too (4 at most; scores are cut into five
            classes).
        level: standard deviation of what comes back, in units of the noise floor.

    The other arguments are those of `ClusterPCA`. Ours.

    >>> layer = ProtectedClusterPCA(2, 1, 0, n_leading=1, stats="batch")
    >>> layer(torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).abs().tolist()[0]
    [1.0, 0.0]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        n_clusters: Positive = 8,
        n_components: NonNegative = 3,
        n_leading: NonNegative = 3,
        protect_labels: bool = False,
        level: PositiveFloat = 1.0,
        rho: Share = 0.25,
        seed: int = 0,
        **statistics: Any,
    ) -> None:
        if n_leading >= width:
            raise ValueError(
                f"n_leading must be below width={width}, got {n_leading}; lower n_leading"
            )
        self.n_leading, self.reads_labels, self.level = n_leading, protect_labels, level
        super().__init__(width, n_clusters, n_components, rho, seed=seed, **statistics)

    def empty(self, width: int) -> ProtectedStats:
        """Statistics in the shapes of the buffers."""
        n_protected = self.n_leading + N_BETWEEN * self.reads_labels
        return ProtectedStats(
            **vars(super().empty(width)),
            spared_mean_D=torch.zeros(width),
            spared_DJ=torch.zeros(width, n_protected),
            kept_J=torch.ones(n_protected),
        )

    def estimate(
        self,
        x_ND: Tensor,
        to_freeze: bool = False,
        n_new: int | None = None,
        labels_N: Tensor | None = None,
    ) -> ProtectedStats:
        """Statistics of the rest, and the protected directions with the share that is restored."""
        all_ND = straight_through(x_ND, len(x_ND) if n_new is None else n_new)
        protected = fit_protected(all_ND, self.n_leading, labels_N)
        mean_D, direction_DJ = protected
        rest_ND = without_protected(x_ND, protected)
        stats = super().estimate(rest_ND, to_freeze, n_new)
        with torch.no_grad():
            after_ND = super().transform(rest_ND, stats, are_last=True)
            coordinate_NJ = protected_coordinates(x_ND, protected)
            share_J = returned_share(after_ND, coordinate_NJ, direction_DJ, self.level)
        return ProtectedStats(
            **vars(stats), spared_mean_D=mean_D, spared_DJ=direction_DJ, kept_J=share_J
        )

    def transform(self, x_ND: Tensor, stats: ProtectedStats, are_last: bool) -> Tensor:
        """Cluster PCA of the rest, with the shrunk protected part added back."""
        protected = stats.protected()
        coordinate_NJ = protected_coordinates(x_ND, protected) * stats.kept_J
        returned_ND = coordinate_NJ @ protected.direction_DJ.T
        rest_ND = without_protected(x_ND, protected)
        return super().transform(rest_ND, stats, are_last) + returned_ND

    def follow(self, x_MD: Tensor, labels_M: Tensor | None) -> None:
        """Update the initial centroids of k-means, outside the protected directions."""
        if self.n_clusters > 1:
            x_MD = without_protected(x_MD, fit_protected(x_MD, self.n_leading, labels_M))
        super().follow(x_MD, labels_M)
