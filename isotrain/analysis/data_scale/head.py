"""The one light model on all features: logistic regression, or one hidden layer.

N rows, B of a batch, F features, C classes, H hidden units.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from isotrain.analysis.data_scale.features import BLOCK, Features, moments
from isotrain.geometry.rng import own_draws

RATE, RATE_OF_HIDDEN = 0.5, 1.5  # over the largest eigenvalue of the features of a batch, about
RAMP = 6  # epochs in each of which the rate doubles up to that, so that little is learned finely
POWERS = 10  # of the matrix of features, to find that eigenvalue
MOMENTUM = 0.9
BATCHES = 100  # of an epoch at most, within the sizes below
SMALLEST_BATCH, LARGEST_BATCH = 64, 1024
PATIENCE, SETTLED = 5, 3e-4  # epochs that must lower the held-out loss by so many nats
MOST_EPOCHS = 1000  # far behind where patience ends


class Head(NamedTuple):
    """A trained head, and the moments by which its features are standardised."""

    network: nn.Module
    mean_F: Tensor
    sd_F: Tensor
    n_epochs: int  # that it was trained for, those after the best one included
    stopped: Literal["patience", "cap"]

    def classes(self, features: Features, row_n: Tensor) -> Tensor:
        """The most likely class `[n]` of each of some rows."""
        with torch.no_grad():
            logits = [
                self.network(features(row_B).sub_(self.mean_F).div_(self.sd_F))
                for row_B in torch.split(row_n, BLOCK)
            ]
        return torch.cat(logits).argmax(dim=1)


def train_head(
    features: Features,
    label_N: Tensor,
    fit_n: Tensor,
    held_n: Tensor,
    n_classes: int,
    hidden: int,
    seed: int,
) -> Head:
    """A head trained on the rows `fit`, as it was when the loss of the rows `held` was least.

    One matrix of F×C, zero at first; with `hidden` = H above 0 two, F×H and H×C, with a ReLU
    between them. Features are standardised by the mean and deviation of the rows `fit`, in one
    matrix of 4 bytes a number. Gradient descent with Nesterov's momentum 0.9, with batches of 64
    rows (more where an epoch would have over 100 of them, up to 1,024), until 5 epochs together
    lowered the held-out loss by less than 3e-4 nats. The cap of 1,000 epochs is a safeguard:
    `stopped` says where it was met. The rate is 0.5/(λ + F/B), 1.5/(λ + F/B) with hidden units:
    λ is the largest eigenvalue of the features' second moments, F/B what B drawn rows add to it.
    The first epoch has 1/64 of it, each of the next six twice the one before: where labels say
    little, the best head lies near its start.

    Stopped early, descent from zero is a penalty on the squared weights: it scores as logistic
    regression whose penalty is chosen on the same rows, from 32 examples on. Adam does not: its
    steps are as long along useless features as along useful ones.
    """
    x_nF, label_n = features(fit_n), label_N[fit_n]
    mean_F, sd_F = moments(x_nF)
    x_nF.sub_(mean_F).div_(sd_F)
    held_mF, held_label_m = features(held_n).sub_(mean_F).div_(sd_F), label_N[held_n]
    with own_draws(seed, "data_scale head"):
        network = _network(features.width, n_classes, hidden)
        size = min(max(SMALLEST_BATCH, len(x_nF) // BATCHES), LARGEST_BATCH)
        largest = _largest_eigenvalue(x_nF) + features.width / min(size, len(x_nF))
        rate = (RATE_OF_HIDDEN if hidden else RATE) / largest
        optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=MOMENTUM, nesterov=True)
        least, best = float("inf"), network
        settled, since, epoch = float("inf"), 0, 0  # the loss that patience counts from, its epoch
        while epoch < min(MOST_EPOCHS, since + PATIENCE):
            epoch += 1
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, 2.0 ** (epoch - 1 - RAMP))
            for at_B in torch.split(torch.randperm(len(x_nF)), size):
                optimizer.zero_grad()
                cross_entropy(network(x_nF[at_B]), label_n[at_B]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            with torch.no_grad():
                held_loss = float(cross_entropy(network(held_mF), held_label_m))
            if held_loss < least:
                least, best = held_loss, deepcopy(network)
            if held_loss < settled - SETTLED:
                settled, since = held_loss, epoch
    return Head(best, mean_F, sd_F, epoch, "patience" if epoch == since + PATIENCE else "cap")


def _largest_eigenvalue(x_NF: Tensor) -> float:
    """That of XᵀX/N, or a little less, by power iteration."""
    image_F = torch.randn(x_NF.shape[1])
    for _ in range(POWERS):
        direction_F = image_F / torch.linalg.vector_norm(image_F).clamp_min(1e-30)
        image_F = x_NF.T @ (x_NF @ direction_F) / len(x_NF)
    return float(torch.linalg.vector_norm(image_F))


def _network(width: int, n_classes: int, hidden: int) -> nn.Module:
    if hidden:
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n_classes))
    linear = nn.Linear(width, n_classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
