"""IsoScore: how evenly a cloud uses its dimensions. N rows, D dimensions."""

from __future__ import annotations

from torch import Tensor

from isotrain.geometry.rows import check_cloud, has_scatter
from isotrain.geometry.spectrum import covariance_traces


def isoscore(x: Tensor) -> Tensor:
    """Fraction of dimensions the rows of `x [N, D]` use evenly; in [0, 1], 1 = isotropic.

    (PR − 1)/(D − 1) with PR = (tr C)²/‖C‖²_F, the participation ratio of the centred
    covariance C. This equals the published five-step definition exactly and needs two traces
    instead of an eigenproblem. Unchanged by rotation, translation and uniform scale, so it does
    not see the mean cone. Biased low for N ≲ 10·D: a Gaussian cloud gives about N/(N + D).
    N = number of rows, unitless; D = 1 gives 1, otherwise rows without
    scatter give 0.

    Raises:
        ValueError: not `[N, D]`, N < 2, or a NaN or infinity.

    Rudman et al. 2022, Eq. 5-7.

    >>> import torch
    >>> isoscore(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).item()
    1.0
    """
    x = check_cloud(x)
    d = x.shape[1]
    if d == 1:
        return x.new_ones(())
    if not has_scatter(x):
        return x.new_zeros(())
    traces = covariance_traces(x / x.abs().amax())  # squares of squares stay in range
    ratio = traces.trace.square() / traces.frobenius_squared
    return ((ratio - 1.0) / (d - 1)).clamp(0.0, 1.0)
