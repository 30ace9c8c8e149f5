"""Assignment of embeddings to clusters: k-means or a Gaussian mixture. N embeddings, K clusters."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.kmeans import KMeans, kmeans, nearest_centroid
from isotrain.geometry.rows import has_scatter

Assign = Literal["kmeans", "gmm"]  # gmm: diagonal Gaussians
EMPTY = 1e-6  # a component with a smaller sum of responsibilities has nothing to be estimated from
SETTLED = 1e-4  # nat per embedding: EM stops at a smaller gain of the mean log-likelihood
FLOOR = 1e-3  # added to every variance, in units of the mean variance of all embeddings


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
    clusters = kmeans(x_ND, n_clusters, generator=generator, init=init, n_iterations=n_iterations)
    if assign == "gmm" and n_clusters > 1:
        anchors = fit_mixture(x_ND, clusters, n_iterations)
        return anchors, nearest(x_ND, anchors)
    none_ZD = x_ND.new_zeros(0, x_ND.shape[1])
    return Anchors(clusters.centroid_KD, none_ZD, none_ZD[:, 0]), clusters.assignment_N


def nearest(x_ND: Tensor, anchors: Anchors) -> Tensor:
    """The cluster `[N]` of each embedding: the nearest centroid, or the likeliest component."""
    if len(anchors.variance_KD) == 0:
        return nearest_centroid(x_ND, anchors.anchor_KD)
    return log_joint(x_ND.detach(), anchors).argmax(dim=1)


@torch.no_grad()
def fit_mixture(x_ND: Tensor, start: KMeans, n_iterations: int = 10) -> Anchors:
    """A mixture of K components that locally maximises Σ_i log Σ_k π_k N(x_i; m_k, v_k).

    At most `n_iterations` rounds of EM from the clusters of k-means; ends when a round gains less
    than 1e-4 nat per embedding. 1e-3 times the mean variance over all dimensions is added to every
    variance. A component whose responsibilities sum to less than 1e-6 keeps its mean, takes the
    variances of all embeddings, and is counted as one.

    `x`: finite float32 or float64, N ≥ 1; N < K is legal. No gradient.

    Rajaei and Sheikhi 2020 centre such components in place of k-means clusters.
    """
    offset_D = x_ND.mean(dim=0)
    centred_ND = x_ND - offset_D
    square_ND = centred_ND.square()
    variance_D = square_ND.mean(dim=0)
    added = FLOOR * float(variance_D.mean())
    if not has_scatter(x_ND) or added < torch.finfo(x_ND.dtype).tiny:
        added = FLOOR

    def maximised(responsibility_NK: Tensor, mean_KD: Tensor) -> Anchors:
        mass_K = responsibility_NK.sum(dim=0)
        filled_K = mass_K > EMPTY
        share_KN = (responsibility_NK / mass_K.clamp_min(EMPTY)).T
        weighted_KD = share_KN @ centred_ND
        spread_KD = (share_KN @ square_ND - weighted_KD.square()).clamp_min(0.0)
        mass_K = torch.where(filled_K, mass_K, 1.0)
        return Anchors(
            torch.where(filled_K[:, None], weighted_KD, mean_KD),
            torch.where(filled_K[:, None], spread_KD, variance_D) + added,
            (mass_K / mass_K.sum()).log(),
        )

    member_NK = torch.nn.functional.one_hot(start.assignment_N, len(start.centroid_KD))
    mixture = maximised(member_NK.to(x_ND.dtype), start.centroid_KD - offset_D)
    likelihood = -math.inf
    for _ in range(n_iterations):
        joint_NK = _log_joint(centred_ND, square_ND, mixture)
        mixture = maximised(joint_NK.softmax(dim=1), mixture.anchor_KD)
        previous, likelihood = likelihood, float(joint_NK.logsumexp(dim=1).mean())
        if likelihood - previous < SETTLED:
            break
    return mixture._replace(anchor_KD=mixture.anchor_KD + offset_D)


def log_joint(x_ND: Tensor, mixture: Anchors) -> Tensor:
    """log π_k + log N(x_i; m_k, diag v_k) of each embedding and component, `[N, K]`, in nat.

    Its softmax over k are the responsibilities, its logsumexp the log-likelihoods `[N]`.
    Σ_d (x − m)²/v is expanded into two matrix products, from the mean of the heaviest component,
    since that sum loses digits far from the origin. Differentiable.
    """
    offset_D = mixture.anchor_KD[mixture.log_weight_K.argmax()]  # an empty one may lie anywhere
    centred_ND = x_ND - offset_D
    return _log_joint(
        centred_ND, centred_ND.square(), mixture._replace(anchor_KD=mixture.anchor_KD - offset_D)
    )


def _log_joint(x_ND: Tensor, square_ND: Tensor, mixture: Anchors) -> Tensor:
    mean_KD, variance_KD, log_weight_K = mixture
    scaled_KD = mean_KD / variance_KD
    constant_K = (mean_KD * scaled_KD + variance_KD.log() + math.log(2.0 * math.pi)).sum(dim=1)
    distance_NK = square_ND @ variance_KD.reciprocal().T - 2.0 * (x_ND @ scaled_KD.T)
    return log_weight_K - 0.5 * (distance_NK + constant_K)
