"""Other removals than projection, and protected directions. N embeddings, R directions."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotrain.geometry.cluster_pca import CenteredClusters, ClusterPCAStats
from isotrain.geometry.groups import N_SLICES, class_scatter, label_classes
from isotrain.geometry.rng import random_directions
from isotrain.geometry.rows import rounding_of
from isotrain.geometry.spectra import leading_directions, noise_floor, root

Removal = Literal["project", "random", "amplify", "clip", "shrink_clip"]
Grad = Literal["detach", "full"]  # what carries a gradient besides the means
GAIN = 3.0  # factor of amplified directions
N_BETWEEN = N_SLICES - 1  # between-class directions protected, at most


def vary_removal(
    stats: ClusterPCAStats,
    clusters: CenteredClusters,
    removal: Removal,
    level: float,
    grad: Grad,
    generator: torch.Generator,
) -> ClusterPCAStats:
    """Statistics of another removal than projection, or with a gradient of directions.

    `random` removes as many random directions as there are leading ones, `amplify` multiplies
    leading ones by 3, `clip` shrinks them to `level` times the noise floor, and `shrink_clip` the
    offset of each cluster's mean from the global one too. The noise floor of a cloud is its mean
    variance per dimension outside the directions.
    """
    if removal == "random":
        n_clusters, _, n_components = stats.direction_KDR.shape
        drawn_KDR = random_directions(stats.anchor_KD, n_clusters, n_components, generator)
        is_real_K1R = stats.direction_KDR.abs().sum(dim=1, keepdim=True) > 0
        return stats._replace(direction_KDR=drawn_KDR * is_real_K1R)
    share, clips = 1.0 - GAIN if removal == "amplify" else 1.0, removal in ("clip", "shrink_clip")
    stats = stats._replace(removed_KR=share * stats.removed_KR)
    follows = grad == "full" and stats.centre_KD.requires_grad and stats.direction_KDR.numel() > 0
    if not (clips or follows):
        return stats
    clouds = clusters.clouds()
    if grad == "detach":
        clouds = [cloud_CD.detach() for cloud_CD in clouds]
    if clips:
        stats = _clip(stats, clusters, clouds, level, removal == "shrink_clip")
    if follows:
        n_removed_K = stats.direction_KDR.square().sum(dim=(1, 2)).round().long().tolist()
        matrices = [
            share * removal_matrix(cloud_CD, n_removed, clips, level)
            for cloud_CD, n_removed in zip(clouds, n_removed_K, strict=True)
        ]
        stats = stats._replace(matrix_KDD=torch.stack(matrices))
    return stats


def _clip(
    stats: ClusterPCAStats,
    clusters: CenteredClusters,
    clouds: list[Tensor],
    level: float,
    shrinks_offsets: bool,
) -> ClusterPCAStats:
    floors = [
        noise_floor(cloud_CD, direction_DR, level)
        for cloud_CD, direction_DR in zip(clouds, stats.direction_KDR, strict=True)
    ]
    stats = stats._replace(removed_KR=torch.stack([share_R for _, share_R in floors]))
    if not shrinks_offsets:
        return stats
    offset_KD = clusters.centre_KD - clusters.mean_D
    length_K = offset_KD.norm(dim=1)
    level_K = torch.stack([level for level, _ in floors])
    kept_K = (level_K / torch.where(length_K > 0, length_K, 1.0)).clamp(max=1.0)
    centre_KD = clusters.centre_KD - kept_K[:, None] * offset_KD
    return stats._replace(centre_KD=centre_KD * clusters.has_scatter)


def removal_matrix(
    centred_ND: Tensor, n_removed: int, clip: bool = False, level: float = 1.0
) -> Tensor:
    """The symmetric matrix M `[D, D]` of a removal y = z − z @ M.

    M = V·diag(r)·Vᵀ, V the `n_removed` leading principal directions of a centred cloud X; those
    whose eigenvalue λ of XᵀX is within rounding of zero do not count. Projection has r = 1;
    `clip` has r_i = 1 − level·√(b/λ_i), at least 0, with b the noise floor of `noise_floor`.

    The gradient to X goes through V, λ and b, once (no double backward); that of the mean is the
    caller's. It is made of the divided differences (f_i − f_j)/(λ_i − λ_j) of Daleckii and Krein, f
    being r on the removed directions and 0 elsewhere. Only a gap g between a removed and another
    direction divides, as g/(g² + (ε·λ_1)²) with ε = eps^(2/3) of the dtype, so equal eigenvalues
    give a finite gradient where that of `torch.linalg.eigh` is NaN. At a tie between a removed and
    another direction M jumps and has no derivative.

    M does not depend on the scale of X: where `has_scatter` says that there is none, remove
    nothing. `centred_ND`: finite, of sum zero; the result has its dtype. Call it outside of
    autocast.

    >>> x = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> removal_matrix(x, 1).diagonal().tolist()
    [1.0, 0.0]
    >>> removal_matrix(x, 1, clip=True).diagonal().tolist()
    [0.75, 0.0]
    """
    return _Removal.apply(centred_ND, n_removed, clip, level)  # type: ignore[no-untyped-call]


class _Removal(torch.autograd.Function):
    """The eigenproblem of the smaller side, and divided differences instead of its backward."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, n_removed: int, clip: bool, level: float) -> Tensor:
        n, d = x_ND.shape
        if n <= d:
            value_T, vector_NT = torch.linalg.eigh(x_ND @ x_ND.T)
            root_DT = x_ND.T @ vector_NT  # V·√Λ
        else:
            value_T, vector_DT = torch.linalg.eigh(x_ND.T @ x_ND)
            root_DT = vector_DT * value_T.clamp_min(0.0).sqrt()
        value_T, root_DT = value_T.flip(0), root_DT.flip(1)
        precision = torch.finfo(x_ND.dtype)
        # λ_1, and 0 if N = 0. Directions within rounding of zero as in leading_directions.
        largest = value_T[:1].sum().clamp_min(precision.tiny)
        real_T = value_T > 4.0 * precision.eps * max(n, d) ** 0.5 * largest
        n_real = int(real_T[:n_removed].sum())
        basis_DR = torch.linalg.qr(root_DT[:, :n_real])[0]
        share_R = noise_floor(x_ND, basis_DR, level)[1] if clip else value_T.new_ones(n_real)
        ctx.level = level
        ctx.save_for_backward(x_ND, basis_DR, share_R, value_T, root_DT[:, n_real:], largest)
        return (basis_DR * share_R) @ basis_DR.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_DD: Tensor) -> tuple[Tensor, None, None, None]:
        x_ND, basis_DR, share_R, value_T, root_DB, largest = ctx.saved_tensors
        d = x_ND.shape[1]
        n_real = len(share_R)
        level_R, level_B = (value_T / largest).split([n_real, len(value_T) - n_real])
        image_DR = 0.5 * (gradient_DD + gradient_DD.T) @ basis_DR
        inner_RR = basis_DR.T @ image_DR
        image_DR = image_DR - basis_DR @ inner_RR
        # Removed with another direction: r/(λ_i − λ_j) = r/λ_i·(1 + λ_j/(λ_i − λ_j)), whose first
        # term is all there is in the null space, and the second needs no unit vectors.
        other_BR = root_DB.T @ image_DR * _inverse(level_R - level_B[:, None]) / largest
        half_DR = (image_DR + root_DB @ other_BR) * (share_R / level_R)
        # Removed with removed, b = level² times the noise floor: √b/(√λ_i·√λ_j·(√λ_i + √λ_j)), and
        # 0 for a projection. A clamped direction (r = 0) is like one of the others.
        kept_R, root_R = 1.0 - share_R, level_R.sqrt()
        smooth_RR = kept_R / (root_R[:, None] * (root_R[:, None] + root_R))
        clamped_RR = (share_R - share_R[:, None]) * _inverse(level_R - level_R[:, None])
        above_R = share_R > 0
        within_RR = torch.where(above_R & above_R[:, None], smooth_RR, clamped_RR)
        half_DR = (half_DR + basis_DR @ (0.5 * within_RR * inner_RR)) / largest
        # Through the mean eigenvalue outside, b/level²: dr_i/db = −1/(2·√(b·λ_i)).
        moved_R = above_R & (kept_R > 0)  # at b = 0 coordinates outside are 0, and so is their part
        slope_R = torch.where(moved_R, -1.0 / torch.where(moved_R, kept_R, 1.0), 0.0) / level_R
        slope_R = ctx.level**2 * slope_R
        slope = (slope_R * inner_RR.diagonal()).sum() / largest / max(1, d - n_real)
        # dL/dS = half·Vᵀ + V·halfᵀ + slope/2·(I − V·Vᵀ) and dL/dX = 2·X·dL/dS.
        along_NR = x_ND @ basis_DR
        across_NR = 2.0 * (x_ND @ half_DR) - slope * along_NR
        gradient_ND = across_NR @ basis_DR.T + 2.0 * (along_NR @ half_DR.T) + slope * x_ND
        return gradient_ND, None, None, None


def _inverse(gap: Tensor) -> Tensor:
    """1/gap, damped where the gap, in units of λ_1, is near rounding."""
    rounding = torch.finfo(gap.dtype).eps ** (2.0 / 3.0)
    return gap / (gap.square() + rounding**2)


class ProtectedDirections(NamedTuple):
    """A point and orthonormal protected directions; zero columns protect nothing."""

    mean_D: Tensor
    direction_DJ: Tensor


def fit_protected(
    x_ND: Tensor, n_leading: int, labels_N: Tensor | None = None
) -> ProtectedDirections:
    """The between-class directions of the labels, then the leading ones of what remains.

    Between-class directions are the principal ones of the class means, weighted by the size of
    each class: C − 1 of them for C classes, 4 at most. Scores (labels of a floating type) are cut
    into five classes at their quantiles. The mean carries a gradient, directions do not.
    """
    mean_D = x_ND.mean(dim=0)
    x_ND = x_ND.detach()
    centred_ND = x_ND - mean_D.detach()
    columns = []
    if labels_N is not None:
        scatter = class_scatter(x_ND, label_classes(labels_N))
        columns.append(leading_directions(scatter.between_CD, N_BETWEEN))
        centred_ND = centred_ND - (centred_ND @ columns[0]) @ columns[0].T
    leading_DL = leading_directions(centred_ND, n_leading)
    columns.append(leading_DL * (centred_ND.abs().amax() > rounding_of(x_ND)))
    return ProtectedDirections(mean_D, torch.cat(columns, dim=1))


def protected_coordinates(x_ND: Tensor, protected: ProtectedDirections) -> Tensor:
    """Coordinates along the protected directions, `[N, J]`."""
    return (x_ND - protected.mean_D) @ protected.direction_DJ


def without_protected(x_ND: Tensor, protected: ProtectedDirections) -> Tensor:
    """The embeddings with the mean's coordinates along the protected directions."""
    return x_ND - protected_coordinates(x_ND, protected) @ protected.direction_DJ.T


def returned_share(
    after_ND: Tensor, coordinate_NJ: Tensor, direction_DJ: Tensor, level: float = 1.0
) -> Tensor:
    """The share `[J]` of each protected direction that brings it to the noise floor, at most 1.

    level·√(b/λ_j), λ_j the variance along direction j and b the mean variance per dimension of
    `after`, the result without them. Where nothing else varies, all is kept.
    Differentiable.
    """
    n_left = (after_ND.shape[1] - direction_DJ.square().sum().round()).clamp_min(1)
    centred_ND = after_ND - after_ND.mean(dim=0)
    varies = centred_ND.detach().abs().amax() > rounding_of(coordinate_NJ, after_ND)
    bulk = centred_ND.square().sum() / n_left
    spread_J = (coordinate_NJ - coordinate_NJ.mean(dim=0)).square().sum(dim=0)
    kept_J = level * root(bulk / torch.where(spread_J > 0, spread_J, 1.0))
    kept_J = kept_J.clamp(max=1.0)
    return torch.where(varies & (spread_J > 0), kept_J, 1.0)
