"""How even a spectrum is, from two traces."""

from __future__ import annotations

import torch
from torch import Tensor


def evenness(trace: Tensor, squares: Tensor, width: int) -> Tensor:
    """IsoScore ((tr C)²/‖C‖²_F − 1)/(D − 1) of a covariance C `[D, D]`; in [0, 1], 1 = isotropic.

    Of `trace` = tr C and `squares` = ‖C‖²_F, as 0-d tensors, and D = `width`. D = 1 gives 1;
    otherwise C = 0 gives 0. With a finite gradient everywhere.

    Rudman et al. 2022, Eq. 5-7, without the eigenvalues.

    >>> C = torch.diag(torch.tensor([4.0, 1.0, 1.0]))
    >>> evenness(C.trace(), C.square().sum(), 3).item()
    0.5
    """
    if width == 1:
        return 1.0 + 0.0 * trace
    nonzero = squares > 0
    ratio = trace.square() / torch.where(nonzero, squares, 1.0)
    return torch.where(nonzero, ((ratio - 1.0) / (width - 1)).clamp(0.0, 1.0), 0.0)
