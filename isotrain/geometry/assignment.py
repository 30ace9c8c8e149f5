"""Hard or soft assignment of embeddings to clusters. N embeddings, K clusters."""

from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.kmeans import kmeans, nearest_centroid, nearest_direction, spherical_kmeans
from isotrain.geometry.mixture import Mixture, fit_mixture, log_joint

Method = Literal["kmeans", "spherical", "gmm"]


class Assignment:
    """How embeddings are assigned to clusters.

    Args:
        method: kmeans | spherical (by cosine) | gmm (diagonal Gaussians, by likelihood).
        softness: 0 = an embedding belongs to one cluster; above, to all by
            softmax(−d/softness), d its squared distance to the centroid over the mean of those to
            the own one (`memberships`).
        n_iterations: rounds of k-means (or EM) at most per training step.
    """

    @checked
    def __init__(
        self,
        method: Method = "kmeans",
        softness: Annotated[float, Field(ge=0)] = 0.0,
        n_iterations: Annotated[int, Field(ge=1)] = 3,
    ) -> None:
        self.method, self.softness, self.n_iterations = method, softness, n_iterations


KMEANS = Assignment()


class Anchors(NamedTuple):
    """References for assignment: centroids, unit centroids, or a mixture of Gaussians."""

    anchor_KD: Tensor
    variance_KD: Tensor  # of a mixture; [0, D] otherwise
    log_weight_K: Tensor  # of a mixture; [0] otherwise
    unit: Tensor  # the mean of what softness is relative to
    method: Method


@torch.no_grad()
def fit_anchors(
    x_ND: Tensor,
    n_clusters: int,
    assign: Assignment = KMEANS,
    *,
    generator: torch.Generator | None = None,
    init: Tensor | None = None,
) -> tuple[Anchors, Tensor]:
    """The anchors of K clusters, and the cluster `[N]` of each embedding.

    k-means by Euclidean distance, by cosine (`spherical`), or a mixture of Gaussians (`gmm`, which
    starts from k-means). `init [K, D]` is where k-means starts. The anchors of softness 0 serve
    softness 0 alone.
    """
    options = {"generator": generator, "init": init, "n_iterations": assign.n_iterations}
    none_ZD = x_ND.new_zeros(0, x_ND.shape[1])
    if assign.method == "gmm" and n_clusters > 1:
        mixture = fit_mixture(x_ND, n_clusters, **options)  # type: ignore[arg-type]
        anchors = Anchors(*mixture, x_ND.new_ones(()), assign.method)
        return anchors, nearest(x_ND, anchors)
    cluster = spherical_kmeans if assign.method == "spherical" and n_clusters > 1 else kmeans
    found = cluster(x_ND, n_clusters, **options)  # type: ignore[arg-type]
    anchors = Anchors(found.centroid_KD, none_ZD, none_ZD[:, 0], x_ND.new_ones(()), assign.method)
    if assign.softness == 0.0:
        return anchors, found.assignment_N
    energy_NK = _energy(x_ND, anchors)
    unit = energy_NK.gather(1, found.assignment_N[:, None]).mean()
    # With every embedding on its anchor, only the rounding of an energy is left, of either sign.
    rounding = 4 * torch.finfo(x_ND.dtype).eps * energy_NK.max()
    return anchors._replace(unit=torch.maximum(unit, rounding)), found.assignment_N


def nearest(x_ND: Tensor, anchors: Anchors) -> Tensor:
    """The cluster `[N]` of each embedding."""
    if anchors.method == "gmm":
        return _energy(x_ND.detach(), anchors).argmin(dim=1)
    find = nearest_direction if anchors.method == "spherical" else nearest_centroid
    return find(x_ND.detach(), anchors.anchor_KD)


def memberships(x_ND: Tensor, anchors: Anchors, softness: float) -> Tensor:
    """How much of each embedding belongs to each cluster, `[N, K]`; sums to 1 over clusters.

    softmax(−e/(softness·ē)) with e the squared distance (of unit vectors, for `spherical`) to an
    anchor and ē the mean e of fitted embeddings to their own; for `gmm`, e = −ln(weight·density)
    and ē = 1, so that 1 gives the posterior. Softness 0 is the nearest anchor alone. The gradient
    runs through the distances.
    """
    n_clusters = len(anchors.anchor_KD)
    if softness == 0.0 or n_clusters == 1:
        own_N = nearest(x_ND, anchors)
        return torch.nn.functional.one_hot(own_N, n_clusters).to(x_ND.dtype)
    unit = torch.where(anchors.unit > 0, anchors.unit, 1.0)
    return torch.softmax(-_energy(x_ND, anchors) / (softness * unit), dim=1)


def _energy(x_ND: Tensor, anchors: Anchors) -> Tensor:
    if anchors.method == "gmm" and len(anchors.variance_KD):
        mixture = Mixture(anchors.anchor_KD, anchors.variance_KD, anchors.log_weight_K)
        return -log_joint(x_ND, mixture)
    anchor_KD = anchors.anchor_KD
    if anchors.method == "spherical" and len(anchor_KD) > 1:
        unit_ND = torch.nn.functional.normalize(x_ND, dim=1)
        return 2.0 - 2.0 * unit_ND @ anchor_KD.T
    offset_D = anchor_KD.mean(dim=0)  # products lose digits far from the origin
    x_ND, anchor_KD = x_ND - offset_D, anchor_KD - offset_D
    square_N = x_ND.square().sum(dim=1, keepdim=True)
    distance_NK = square_N + anchor_KD.square().sum(dim=1) - 2.0 * (x_ND @ anchor_KD.T)
    return distance_NK.clamp_min(0.0)
