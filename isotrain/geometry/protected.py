"""Protected directions: set aside before a removal, and given back. N embeddings, D width, J."""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.groups import N_SLICES, class_scatter, label_classes
from isotrain.geometry.rows import rounding_of
from isotrain.geometry.spectra import leading_directions, root

N_BETWEEN = N_SLICES - 1  # between-class directions protected, at most


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
        columns.append(leading_directions(scatter.between_CD, N_BETWEEN, is_mean_0=False))
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
    share_J = level * root(bulk / torch.where(spread_J > 0, spread_J, 1.0))
    share_J = share_J.clamp(max=1.0)
    return torch.where(varies & (spread_J > 0), share_J, 1.0)
