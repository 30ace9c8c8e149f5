"""A linear head on frozen features: logistic regression with two classes. M rows, D dimensions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.levels import rms_distance

MOST_ROUNDS = 1000
SETTLED = 1e-7  # largest entry of the gradient


class Logistic(NamedTuple):
    """p(class 1) = σ(w·(x − m)/s + b)."""

    mean_D: Tensor
    scale: Tensor
    weight_D: Tensor
    bias: Tensor

    def __call__(self, x_MD: Tensor) -> Tensor:
        """The class of each row, 0 or 1."""
        z_MD = (x_MD.double() - self.mean_D) / self.scale
        return (z_MD @ self.weight_D + self.bias > 0).long()


def fit_logistic(x_MD: Tensor, label_M: Tensor, l2: float) -> Logistic:
    """The minimum of mean log loss + l2/2·‖w‖², found by L-BFGS in float64.

    Features are centred, and divided by one number, so that their mean variance per dimension is
    1: the penalty has no unit, and no coordinate is rescaled against another. The bias is not
    penalised. The function is convex, so the start does not matter.

    Raises:
        ValueError: labels of one class.

    >>> x = torch.tensor([[0.0], [1.0], [4.0], [5.0]])
    >>> fit_logistic(x, torch.tensor([0, 0, 1, 1]), l2=1e-3)(x).tolist()
    [0, 0, 1, 1]
    """
    if len(torch.unique(label_M)) != 2:
        raise ValueError(
            f"a linear head needs two classes, got {torch.unique(label_M).tolist()}; give it "
            "more training rows"
        )
    mean_D = x_MD.double().mean(dim=0)
    centred_MD = x_MD.double() - mean_D
    spread = rms_distance(centred_MD) / x_MD.shape[1] ** 0.5
    scale = torch.where(spread > 0, spread, 1.0)
    z_MD, y_M = centred_MD / scale, label_M.double()
    weight_D = torch.zeros_like(mean_D, requires_grad=True)
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight_D, bias],
        max_iter=MOST_ROUNDS,
        tolerance_grad=SETTLED,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        fit = torch.nn.functional.binary_cross_entropy_with_logits(z_MD @ weight_D + bias, y_M)
        total = fit + 0.5 * l2 * weight_D.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return Logistic(mean_D, scale, weight_D.detach(), bias.detach())
