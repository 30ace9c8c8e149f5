"""Diagonal Gaussian mixtures. N embeddings, D width, K components."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.kmeans import KMeans
from isotrain.geometry.rows import has_scatter

EMPTY = 1e-6  # a component with a smaller sum of responsibilities has nothing to be estimated from
SETTLED = 1e-4  # nat per embedding: EM stops at a smaller gain of the mean log-likelihood
FLOOR = 1e-3  # added to every variance, in units of the mean variance of all embeddings


class Mixture(NamedTuple):
    """Means of diagonal Gaussians, their variances and the natural logs of their weights."""

    anchor_KD: Tensor
    variance_KD: Tensor
    log_weight_K: Tensor


@torch.no_grad()
def fit_mixture(x_ND: Tensor, start: KMeans, n_iterations: int = 10) -> Mixture:
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
    floor = FLOOR * float(variance_D.mean())
    if not has_scatter(x_ND) or floor < torch.finfo(x_ND.dtype).tiny:
        floor = FLOOR

    def maximised(responsibility_NK: Tensor, mean_KD: Tensor) -> Mixture:
        mass_K = responsibility_NK.sum(dim=0)
        filled_K = mass_K > EMPTY
        share_KN = (responsibility_NK / mass_K.clamp_min(EMPTY)).T
        weighted_mean_KD = share_KN @ centred_ND
        spread_KD = (share_KN @ square_ND - weighted_mean_KD.square()).clamp_min(0.0)
        mass_K = torch.where(filled_K, mass_K, 1.0)
        return Mixture(
            torch.where(filled_K[:, None], weighted_mean_KD, mean_KD),
            torch.where(filled_K[:, None], spread_KD, variance_D) + floor,
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


def likeliest(x_ND: Tensor, mixture: Mixture) -> Tensor:
    """The likeliest component `[N]` of each embedding. No gradient."""
    return log_joint(x_ND.detach(), mixture).argmax(dim=1)


def log_joint(x_ND: Tensor, mixture: Mixture) -> Tensor:
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


def _log_joint(x_ND: Tensor, square_ND: Tensor, mixture: Mixture) -> Tensor:
    mean_KD, variance_KD, log_weight_K = mixture
    scaled_KD = mean_KD / variance_KD
    constant_K = (mean_KD * scaled_KD + variance_KD.log() + math.log(2.0 * math.pi)).sum(dim=1)
    distance_NK = square_ND @ variance_KD.reciprocal().T - 2.0 * (x_ND @ scaled_KD.T)
    return log_weight_K - 0.5 * (distance_NK + constant_K)
