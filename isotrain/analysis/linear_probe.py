"""Linear maps from frozen features to labels, their penalty chosen on held-out training rows.

N rows, F features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.groups import hashed_order

MOST_STEPS = 500  # of L-BFGS
SETTLED = 1e-6  # largest entry of the gradient
RISES = 3  # of the held-out loss in a row, behind which no smaller penalty is tried


class Probe(NamedTuple):
    """Outputs ((x − mean)/sd) W + b: logits of C classes, or one score."""

    mean_F: Tensor
    sd_F: Tensor
    weight_FC: Tensor
    bias_C: Tensor

    def __call__(self, x_NF: Tensor) -> Tensor:
        """Outputs `[N, C]`, float64."""
        return ((x_NF.double() - self.mean_F) / self.sd_F) @ self.weight_FC + self.bias_C


class Chosen(NamedTuple):
    """A probe fitted on all training rows, and how its penalty was found."""

    probe: Probe
    penalty: float
    held_out_loss: float
    n_held_out: int


Fit = Callable[[Tensor, Tensor, Iterable[float]], Iterator[Probe]]
Loss = Callable[[Tensor, Tensor], Tensor]


def fit_logistic(
    x_NF: Tensor,
    class_N: Tensor,
    penalties: Iterable[float],
    n_classes: int = 2,
    one_scale: bool = False,
) -> Iterator[Probe]:
    """Multinomial logistic regression at each penalty, in the order of `penalties`.

    The minimum of mean log loss + λ/2·‖W‖² in float64, by L-BFGS, each fit started at the last
    one. Features are standardised by these rows (a constant one becomes 0), biases not
    penalised. The function is convex: the start changes the time alone.

    With `one_scale` all features are divided by the root of their mean variance instead of each by
    its own: then the penalty sees which dimensions are large, and a rotation of the rows changes no
    output.

    Agrees with sklearn's LogisticRegression(C=1/(λ·N)) on standardised features.

    >>> x = torch.tensor([[0.0], [1.0], [4.0], [5.0]])
    >>> next(fit_logistic(x, torch.tensor([0, 0, 1, 1]), [0.01]))(x).argmax(dim=1).tolist()
    [0, 0, 1, 1]
    """
    mean_F, sd_F = _moments(x_NF)
    if one_scale:
        spread = (x_NF.double() - mean_F).square().mean().sqrt()
        sd_F = torch.where(spread > 0, spread, 1.0).expand_as(mean_F)
    z_NF = (x_NF.double() - mean_F) / sd_F
    weight_FC = torch.zeros(z_NF.shape[1], n_classes, dtype=torch.float64, requires_grad=True)
    bias_C = torch.zeros(n_classes, dtype=torch.float64, requires_grad=True)
    for penalty in penalties:
        optimizer = torch.optim.LBFGS(
            [weight_FC, bias_C],
            max_iter=MOST_STEPS,
            tolerance_grad=SETTLED,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def loss(penalty: float = penalty, optimizer: torch.optim.LBFGS = optimizer) -> Tensor:
            optimizer.zero_grad()
            total = torch.nn.functional.cross_entropy(z_NF @ weight_FC + bias_C, class_N.long())
            total = total + 0.5 * penalty * weight_FC.square().sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        yield Probe(mean_F, sd_F, weight_FC.detach().clone(), bias_C.detach().clone())


def fit_ridge(x_NF: Tensor, score_N: Tensor, penalties: Iterable[float]) -> Iterator[Probe]:
    """Ridge regression at each penalty, in the order of `penalties`; C = 1.

    The minimum of mean squared error/2 + λ/2·‖w‖² in float64, exactly, from one eigenproblem of
    the smaller side. Features are standardised by these rows, the bias is not penalised.

    Agrees with sklearn's Ridge(alpha=λ·N) on standardised features.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> next(fit_ridge(x, torch.tensor([1.0, 3.0, 5.0]), [0.0]))(x)[:, 0].round().tolist()
    [1.0, 3.0, 5.0]
    """
    mean_F, sd_F = _moments(x_NF)
    z_NF = (x_NF.double() - mean_F) / sd_F
    bias_C = score_N.double().mean()[None]
    y_N1 = (score_N.double() - bias_C)[:, None]
    n, f = z_NF.shape
    if f <= n:
        value_S, vector_SS = torch.linalg.eigh(z_NF.T @ z_NF / n)
        image_S1 = vector_SS.T @ (z_NF.T @ y_N1 / n)
        basis_FS = vector_SS
    else:
        value_S, vector_SS = torch.linalg.eigh(z_NF @ z_NF.T / n)
        image_S1, basis_FS = vector_SS.T @ y_N1, z_NF.T @ vector_SS / n
    is_real_S = value_S > value_S[-1] * max(n, f) * torch.finfo(value_S.dtype).eps
    for penalty in penalties:
        scaled_S1 = image_S1 / (value_S + penalty)[:, None]
        weight_F1 = basis_FS @ torch.where(is_real_S[:, None], scaled_S1, 0.0)
        yield Probe(mean_F, sd_F, weight_F1, bias_C)


def log_loss(logit_NC: Tensor, class_N: Tensor) -> Tensor:
    """Mean negative log likelihood of the classes, in nats.

    >>> round(log_loss(torch.zeros(1, 2), torch.tensor([1])).item(), 4)
    0.6931
    """
    return torch.nn.functional.cross_entropy(logit_NC, class_N.long())


def squared_error(output_N1: Tensor, score_N: Tensor) -> Tensor:
    """Mean squared error of scores.

    >>> squared_error(torch.tensor([[2.0]]), torch.tensor([0.0])).item()
    4.0
    """
    return (output_N1[:, 0] - score_N).square().mean()


def choose_penalty(
    fit: Fit,
    loss: Loss,
    x_NF: Tensor,
    label_N: Tensor,
    penalties: Sequence[float],
    held_out: float,
    seed: int,
) -> Chosen:
    """The probe of all rows at the penalty with the least loss on a held-out part of them.

    `held_out` of the rows, drawn by a hash of their position and the seed, are left out of the
    fits that choose; features are standardised by the others. No other row is looked at.
    Penalties are tried from the largest down, until three in a row have a larger loss than that
    before them: the path may have bumps.

    Raises:
        ValueError: fewer than two rows on either side.
    """
    order_N = hashed_order(len(x_NF), seed)
    n_out = round(held_out * len(x_NF))
    if min(n_out, len(x_NF) - n_out) < 2:
        raise ValueError(
            f"a penalty is chosen on rows held out of {len(x_NF)}; give more training rows"
        )
    out_N, in_N = order_N[:n_out], order_N[n_out:]
    falling = sorted(penalties, reverse=True)
    best, least = falling[0], float("inf")
    last, n_rises = least, 0
    probes = fit(x_NF[in_N], label_N[in_N], falling)
    for penalty, probe in zip(falling, probes, strict=True):
        found = float(loss(probe(x_NF[out_N]), label_N[out_N]))
        if found < least:
            best, least = penalty, found
        n_rises = n_rises + 1 if found > last else 0
        last = found
        if n_rises == RISES:
            break
    return Chosen(next(fit(x_NF, label_N, [best])), best, least, n_out)


def _moments(x_NF: Tensor) -> tuple[Tensor, Tensor]:
    mean_F = x_NF.double().mean(dim=0)
    sd_F = (x_NF.double() - mean_F).square().mean(dim=0).sqrt()
    rounding = 1e-12 * x_NF.abs().amax().double()
    return mean_F, torch.where(sd_F > rounding, sd_F, 1.0)
