"""Initialise a head with a least-squares solution. N examples, F features, C outputs.

P vectors per example, D width; F = D for P = 1 and 4D for P = 2 (`pair_features`).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from isotrain.model.heads import LinearHead, ScaledCosineHead
from isotrain.training.monitor.sampling import Reservoir
from isotrain.training.temperature import best_factor
from isotrain.types import Batch, ModelOutput

STRENGTHS = tuple(10.0**k for k in range(-4, 3))  # relative to the mean eigenvalue of XᵀX
MOST = 100.0  # largest factor of logits: above it, separable classes have no gradient


Solvable = LinearHead | ScaledCosineHead


class Ridge(NamedTuple):
    """A linear map y = W x + b, and its leave-one-out predictions."""

    weight_CF: Tensor
    bias_C: Tensor
    strength: float  # λ relative to the mean eigenvalue of XᵀX
    left_out_NC: Tensor


def ridge(x_NF: Tensor, y_NC: Tensor) -> Ridge:
    """The ridge regression with the smallest leave-one-out error, in float64.

    Minimises ‖X W − Y‖² + λ‖W‖² on centred X and Y, so that the bias is not penalised. With
    H = 1/N + X (XᵀX + λ)⁻¹ Xᵀ, the residual of example i under the fit without it is
    (y − ŷ)_i / (1 − H_ii): exact, without N fits. λ is one of `STRENGTHS` times tr(XᵀX)/F; a tie
    goes to the smaller. Features without scatter get W = 0 and the mean target as b.

    Allen 1974 (PRESS); Golub, Heath and Wahba 1979, equation 2.2.

    >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    >>> found = ridge(x, 2 * x + 1)
    >>> round(float(found.weight_CF), 2), round(float(found.bias_C), 2)
    (2.0, 1.0)
    """
    x_NF, y_NC = x_NF.double(), y_NC.double()
    n, n_features = x_NF.shape
    mean_F, mean_C = x_NF.mean(dim=0), y_NC.mean(dim=0)
    centred_NF, target_NC = x_NF - mean_F, y_NC - mean_C
    value_F, vector_FF = torch.linalg.eigh(centred_NF.T @ centred_NF)
    value_F = value_F.clamp_min(0.0)
    projection_NF = centred_NF @ vector_FF
    moment_FC = projection_NF.T @ target_NC
    unit = (value_F.sum() / n_features).clamp_min(1e-200)  # in case of no scatter
    best: tuple[float, Ridge] | None = None
    for strength in STRENGTHS:
        inverse_F = 1 / (value_F + strength * unit)
        residual_NC = target_NC - projection_NF @ (inverse_F[:, None] * moment_FC)
        leverage_N = 1 / n + projection_NF.square() @ inverse_F
        residual_NC = residual_NC / (1 - leverage_N)[:, None]
        error = float(residual_NC.square().sum())
        if best is None or error < best[0]:
            weight_CF = (vector_FF @ (inverse_F[:, None] * moment_FC)).T
            bias_C = mean_C - weight_CF @ mean_F
            best = error, Ridge(weight_CF, bias_C, strength, y_NC - residual_NC)
    assert best is not None
    return best[1]


def line_of(x_N: Tensor, y_N: Tensor) -> tuple[float, float]:
    """Slope and intercept of the line y = a·x + b by least squares, in float64.

    Raises:
        ValueError: y does not rise with x.

    >>> line_of(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([1.0, 2.0, 3.0]))
    (2.0, 1.0)
    """
    xy_2N = torch.stack([x_N, y_N]).double()
    variance, covariance = xy_2N.cov()[0].tolist()
    if not covariance > 0:
        raise ValueError(
            "training.solved_head=true solves a cosine's positive scale, and over the training "
            f"examples label and cosine have the covariance {covariance:.2g}; use "
            "training.solved_head=false"
        )
    slope = covariance / variance
    mean_x, mean_y = xy_2N.mean(dim=1).tolist()
    return slope, mean_y - slope * mean_x


@torch.no_grad()
def solve_head(head: Solvable, passes: Iterable[tuple[Batch, ModelOutput]], most: int) -> None:
    """Initialise a head with the least-squares solution on training examples.

    Up to `most` examples with the lowest id hashes are used: the same ones for any batch size and
    number of processes. Memory is about most·F·36 bytes. The scale and bias of a cosine are those
    of `line_of`. A linear head is that of `ridge`: with one output it regresses the labels.
    Otherwise targets are one-hot classes, and the map is then multiplied by the `best_factor` of
    the leave-one-out logits.
    """
    reservoir = Reservoir(most)
    for batch, output in passes:
        reservoir.add(batch.index, [head.features(output.pooled)], [batch.labels])
    x_NF, labels_N = reservoir.cloud(0), reservoir.fact(0)  # sorted by hash
    if isinstance(head, ScaledCosineHead):
        slope, bias = line_of(x_NF[:, 0], labels_N)
        head.log_scale.fill_(math.log(slope))
        head.bias.fill_(bias)
        return
    n_outputs = head.linear.out_features
    if n_outputs == 1:
        fit = ridge(x_NF, labels_N[:, None])
    else:
        fit = ridge(x_NF, one_hot(labels_N.long(), n_outputs))
        factor = best_factor(fit.left_out_NC, labels_N.long(), 1.0, MOST)
        fit = fit._replace(weight_CF=factor * fit.weight_CF, bias_C=factor * fit.bias_C)
    head.linear.weight.copy_(fit.weight_CF)
    head.linear.bias.copy_(fit.bias_C)
