"""IsoScore*: IsoScore of a covariance shrunk towards a stable one. N embeddings, D dimensions."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud, to_one
from isotrain.geometry.spectra import evenness


@checked
def isoscore_star(
    x: Tensor | Cloud, reference_covariance: Tensor, shrinkage: Annotated[float, Field(ge=0, le=1)]
) -> Tensor:
    """IsoScore of (1 − ζ)·C + ζ·C₀, in [0, 1], 1 = isotropic; differentiable in `x [N, D]`.

    C is the centred covariance of `x` (divided by N − 1), C₀ = `reference_covariance [D, D]`, ζ =
    `shrinkage` in [0, 1]: 0 gives IsoScore, 1 that of C₀. By traces, without an eigenproblem, so
    the gradient is finite for equal eigenvalues and equal embeddings too. Does not see the mean
    cone. D = 1 gives 1, otherwise a sum of 0 gives 0.

    Raises:
        ValueError: C₀ not `[D, D]`, not finite or not symmetric to 1e-4.

    Rudman and Eickhoff 2024.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> isoscore_star(x, torch.diag(torch.tensor([0.0, 2.0])), 0.5).item()
    1.0
    """
    cloud = Cloud.of(x)
    d, zeta = cloud.d, float(shrinkage)
    reference_DD = reference_covariance.to(cloud.mean_D)
    values_DD = reference_DD.detach()
    largest, is_square = values_DD.abs().amax(), values_DD.shape == (d, d)
    if not is_square or not bool((values_DD - values_DD.T).abs().amax() <= 1e-4 * largest):
        raise ValueError(
            f"reference_covariance must be finite, symmetric and [{d}, {d}], got "
            f"{[*reference_DD.shape]}; pass a covariance"
        )
    # One power of two for both brings squares into range.
    sizes = [1.0 / cloud.shrink] if zeta < 1 else []
    sizes += [float(largest) ** 0.5] if zeta > 0 else []
    scale = to_one(max(sizes))
    target_DD = zeta * reference_DD * scale * scale
    # Without weight, x may be so much larger than C₀ that its factor has no number.
    weight = (1.0 - zeta) / (cloud.n - 1) * (scale / cloud.unit) ** 2 if zeta < 1 else 0.0
    weighted_SS = weight * cloud.gram_SS
    if len(weighted_SS) == d:
        cross = (weighted_SS * target_DD).sum()
    else:  # N < D
        centred_ND = cloud.rows * cloud.unit - cloud.mean_D
        cross = weight * ((centred_ND @ target_DD) * centred_ND).sum()
    trace = weighted_SS.trace() + target_DD.trace()
    frobenius = weighted_SS.square().sum() + 2.0 * cross + target_DD.square().sum()
    return evenness(trace, frobenius, d)


def isoscore_star_of_rows(
    x: Tensor | Cloud, reference: Tensor, shrinkage: Annotated[float, Field(ge=0, le=1)] = 0.5
) -> Tensor:
    """`isoscore_star` with the covariance of `reference [M, D]` as the target; in [0, 1].

    >>> import torch
    >>> round(isoscore_star_of_rows(torch.eye(3), torch.eye(3)).item(), 6)
    0.5
    """
    cloud, target = Cloud.of(x), Cloud(reference)
    if not cloud.unit == target.unit == 1.0:  # a covariance would leave the range of float64
        scale = min(cloud.shrink, target.shrink)
        cloud, target = Cloud(cloud.rows * scale), Cloud(target.rows * scale)
    return isoscore_star(cloud, target.scatter_DD / (target.n - 1), shrinkage)
