"""Spectra: eigenvalues of a point cloud, their shares, entropy and IsoScore. D dimensions."""

import torch
from torch import Tensor


def spectrum_of(gram_SS: Tensor, width: int, most: int) -> Tensor:
    """Eigenvalues `[D]` of a Gram matrix of either side, falling, zero-padded to `width`.

    Those below D·eps·λ₁ are rounding and set to 0, so that both sides, and one pass or many,
    give the same spectrum; so are those past `most`. Differentiable.
    """
    value_S = torch.linalg.eigvalsh(gram_SS).flip(0)[: min(most, width)]
    cut = width * torch.finfo(value_S.dtype).eps * value_S[0]
    value_S = torch.where(value_S > cut, value_S, 0.0)
    return torch.nn.functional.pad(value_S, (0, width - len(value_S)))


def shares(weight_D: Tensor) -> Tensor:
    """Non-negative numbers divided by their sum; all zero where the sum is."""
    total = weight_D.sum()
    return weight_D / torch.where(total > 0, total, 1.0)


def entropy(share_D: Tensor) -> Tensor:
    """−Σ p·ln p in nats, with 0·ln 0 = 0."""
    real_D = share_D > 0
    return 0.0 - (share_D * torch.where(real_D, share_D, 1.0).log()).sum()


def evenness(trace: Tensor, squares: Tensor, width: int) -> Tensor:
    """IsoScore ((tr C)²/‖C‖²_F − 1)/(D − 1) of a covariance C `[D, D]`; in [0, 1], 1 = isotropic.

    Of `trace` = tr C and `squares` = ‖C‖²_F, as 0-d tensors, and D = `width`. D = 1 gives 1;
    otherwise C = 0 gives 0. With a finite gradient everywhere.

    Rudman et al. 2022, Eq. 5-7, without the eigenvalues.
    """
    if width == 1:
        return 1.0 + 0.0 * trace
    nonzero = squares > 0
    ratio = trace.square() / torch.where(nonzero, squares, 1.0)
    return torch.where(nonzero, ((ratio - 1.0) / (width - 1)).clamp(0.0, 1.0), 0.0)
