"""Cluster PCA with protected directions, as an isotropy layer. N embeddings, D width."""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cluster_pca import ClusterPCAStats, apply_cluster_pca
from isotrain.geometry.removal import (
    N_BETWEEN,
    ProtectedDirections,
    fit_protected,
    protected_coordinates,
    returned_share,
    without_protected,
)
from isotrain.geometry.straight_through import straight_through
from isotrain.transforms.cluster_pca import ClusterPCA


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
        The others are those of `ClusterPCA`.

    Ours.

    >>> layer = ProtectedClusterPCA(2, 1, 0, n_leading=1, stats="batch")
    >>> layer(torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).abs().tolist()[0]
    [1.0, 0.0]
    """

    @checked
    def __init__(
        self,
        width: Annotated[int, Field(ge=1)],
        n_clusters: Annotated[int, Field(ge=1)] = 8,
        n_components: Annotated[int, Field(ge=0)] = 3,
        n_leading: Annotated[int, Field(ge=0)] = 3,
        protect_labels: bool = False,
        level: Annotated[float, Field(gt=0)] = 1.0,
        rho: Annotated[float, Field(gt=0, le=1)] = 0.25,
        seed: int = 0,
        **statistics: Any,
    ) -> None:
        if n_leading >= width:
            raise ValueError(
                f"n_leading must be below width={width}, got {n_leading}; lower n_leading"
            )
        self.n_leading, self.reads_labels = n_leading, protect_labels
        options = {"level": level, "rho": rho, "seed": seed, **statistics}
        super().__init__(width, n_clusters, n_components, **options)

    def _empty_statistics(self, width: int) -> ClusterPCAStats:
        n_protected = self.n_leading + N_BETWEEN * self.reads_labels
        protected: dict[str, Any] = {
            "spared_mean_D": torch.zeros(width),
            "spared_DJ": torch.zeros(width, n_protected),
            "kept_J": torch.ones(n_protected),
        }
        return super()._empty_statistics(width)._replace(**protected)

    def estimate(
        self,
        x_ND: Tensor,
        to_freeze: bool = False,
        n_own: int | None = None,
        labels_N: Tensor | None = None,
    ) -> ClusterPCAStats:
        """Statistics of the rest, and the protected directions with the share that is restored."""
        all_ND = straight_through(x_ND, len(x_ND) if n_own is None else n_own)
        protected = fit_protected(all_ND, self.n_leading, labels_N)
        stats = super().estimate(without_protected(x_ND, protected), to_freeze, n_own)
        with torch.no_grad():
            coordinate_NJ = protected_coordinates(x_ND, protected)
            rest_ND = without_protected(x_ND, protected)
            after_ND = apply_cluster_pca(rest_ND, stats, stats.assignment_N)
            direction_DJ = protected.direction_DJ
            kept_J = returned_share(after_ND, coordinate_NJ, direction_DJ, self.level)
        return stats._replace(spared_mean_D=protected.mean_D, spared_DJ=direction_DJ, kept_J=kept_J)

    def remove(self, x_ND: Tensor, stats: ClusterPCAStats, assignment_N: Tensor | None) -> Tensor:
        """Cluster PCA of the rest, with the shrunk protected part added back."""
        protected = ProtectedDirections(stats.spared_mean_D, stats.spared_DJ)  # type: ignore[arg-type]
        kept_NJ = protected_coordinates(x_ND, protected) * stats.kept_J  # type: ignore[operator]
        returned_ND = kept_NJ @ protected.direction_DJ.T
        return super().remove(without_protected(x_ND, protected), stats, assignment_N) + returned_ND

    def follow(self, x_MD: Tensor, labels_M: Tensor | None) -> None:
        """Update the initial centroids of k-means, outside the protected directions."""
        if self.n_clusters > 1:
            x_MD = without_protected(x_MD, fit_protected(x_MD, self.n_leading, labels_M))
        super().follow(x_MD, labels_M)
