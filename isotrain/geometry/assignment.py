"""Assignment of embeddings to clusters: k-means or a Gaussian mixture. N embeddings, K clusters."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.kmeans import kmeans, nearest_centroid
from isotrain.geometry.mixture import Mixture, fit_mixture, log_joint

Assign = Literal["kmeans", "gmm"]  # gmm: diagonal Gaussians


class Anchors(NamedTuple):
    """Centroids, or means of a mixture with their variances and natural logs of the weights."""

    anchor_KD: Tensor
    variance_KD: Tensor  # of a mixture; [0, D] otherwise
    log_weight_K: Tensor  # of a mixture; [0] otherwise


@torch.no_grad()
def fit_anchors(
    x_ND: Tensor,
    n_clusters: int,
    assign: Assign = "kmeans",
    *,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
    n_iterations: int = 3,
) -> tuple[Anchors, Tensor]:
    """The anchors of K clusters, and the cluster `[N]` of each embedding.

    Arguments as of `kmeans`, from whose clusters the mixture starts too.
    """
    if assign == "gmm" and n_clusters > 1:
        mixture = fit_mixture(
            x_ND, n_clusters, generator=generator, init=init, n_iterations=n_iterations
        )
        anchors = Anchors(*mixture)
        return anchors, nearest(x_ND, anchors)
    clusters = kmeans(x_ND, n_clusters, generator=generator, init=init, n_iterations=n_iterations)
    none_ZD = x_ND.new_zeros(0, x_ND.shape[1])
    return Anchors(clusters.centroid_KD, none_ZD, none_ZD[:, 0]), clusters.assignment_N


def nearest(x_ND: Tensor, anchors: Anchors) -> Tensor:
    """The cluster `[N]` of each embedding: the nearest centroid, or the likeliest component."""
    if len(anchors.variance_KD) == 0:
        return nearest_centroid(x_ND.detach(), anchors.anchor_KD)
    return log_joint(x_ND.detach(), Mixture(*anchors)).argmax(dim=1)
