"""Running covariance. N embeddings, D dimensions."""

import torch
from torch import Tensor

from isotrain.geometry.rows import finite_rows


class RunningCovariance:
    """Number, mean and scatter of the finite embeddings added so far, in float64.

    Sums are taken about the mean, so that a mean far from 0 costs no digits.
    """

    def __init__(self, width: int, device: torch.device | None = None) -> None:
        self.n = 0
        self.mean_D = torch.zeros(width, dtype=torch.float64, device=device)
        self.scatter_DD = torch.zeros(width, width, dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, x_ND: Tensor) -> None:
        """Take in the embeddings without a NaN or infinity."""
        x_ND = finite_rows(x_ND.detach()).double()
        if len(x_ND) == 0:
            return
        n, mean_D = self.n + len(x_ND), x_ND.mean(dim=0)
        centred_ND, apart_D = x_ND - mean_D, mean_D - self.mean_D
        self.scatter_DD += centred_ND.T @ centred_ND
        self.scatter_DD += torch.outer(apart_D, apart_D) * (self.n * len(x_ND) / n)
        self.mean_D += apart_D * (len(x_ND) / n)
        self.n = n

    def covariance(self) -> Tensor:
        """Σ(x − m)(x − m)ᵀ/(N − 1) `[D, D]`; zeros for N < 2."""
        return self.scatter_DD / max(self.n - 1, 1)
