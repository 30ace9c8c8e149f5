"""The one light model on all features: logistic regression, or one hidden layer.

N rows, B of a batch, F features, C classes, H hidden units.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from isotrain.analysis.data_scale.features import BLOCK, Features
from isotrain.own_draws import own_draws

RATE, RATE_OF_HIDDEN = 0.3, 3.0  # over the number of features
MOMENTUM = 0.9
BATCHES = 100  # of an epoch at most, within the sizes below
SMALLEST_BATCH, LARGEST_BATCH = 64, 1024
MOST_EPOCHS, MOST_STEPS, PATIENCE = 100, 2000, 5


class Head(NamedTuple):
    """A trained head, and the moments by which its features are standardised."""

    network: nn.Module
    mean_F: Tensor
    sd_F: Tensor
    n_epochs: int  # that it was trained for, those after the best one included

    def classes(self, features: Features, row_n: Tensor) -> Tensor:
        """The most likely class `[n]` of each of some rows."""
        with torch.no_grad():
            logits = [self._logits(features, row_B) for row_B in torch.split(row_n, BLOCK)]
        return torch.cat(logits).argmax(dim=1)

    def loss(self, features: Features, row_n: Tensor, label_N: Tensor) -> float:
        """Mean cross-entropy of some rows."""
        with torch.no_grad():
            losses = [
                cross_entropy(self._logits(features, row_B), label_N[row_B], reduction="sum")
                for row_B in torch.split(row_n, BLOCK)
            ]
        return float(torch.stack(losses).sum()) / len(row_n)

    def _logits(self, features: Features, row_B: Tensor) -> Tensor:
        logits_BC: Tensor = self.network(features(row_B).sub_(self.mean_F).div_(self.sd_F))
        return logits_BC


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
    between them. Features are standardised by the mean and deviation of the rows `fit`. Gradient
    descent with Nesterov's momentum 0.9 at rate 0.3/F (3/F with hidden units), with batches of 64
    rows (more where an epoch would have over 100 of them, up to 1,024), until 5 epochs brought no
    lower held-out loss, and for 100 epochs and 2,000 steps at most. The seed decides the order of
    rows and the first weights.

    Stopped early, descent from zero is a penalty on the squared weights: it scores as logistic
    regression whose penalty is chosen on the same rows, from 32 examples on. Adam does not: its
    steps are as long along useless features as along useful ones.
    """
    mean_F, sd_F = features.moments(fit_n)
    with own_draws(seed, "data_scale head"):
        head = Head(_network(features.width, n_classes, hidden), mean_F, sd_F, 0)
        rate = (RATE_OF_HIDDEN if hidden else RATE) / features.width
        optimizer = torch.optim.SGD(
            head.network.parameters(), lr=rate, momentum=MOMENTUM, nesterov=True
        )
        size = min(max(SMALLEST_BATCH, len(fit_n) // BATCHES), LARGEST_BATCH)
        most_epochs = min(MOST_EPOCHS, max(1, MOST_STEPS * size // len(fit_n)))
        least, best, best_epoch, epoch = float("inf"), head.network, 0, 0
        while epoch < min(most_epochs, best_epoch + PATIENCE):
            epoch += 1
            for row_B in torch.split(fit_n[torch.randperm(len(fit_n))], size):
                optimizer.zero_grad()
                loss = cross_entropy(head._logits(features, row_B), label_N[row_B])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            held_loss = head.loss(features, held_n, label_N)
            if held_loss < least:
                least, best, best_epoch = held_loss, deepcopy(head.network), epoch
    return head._replace(network=best, n_epochs=epoch)


def _network(width: int, n_classes: int, hidden: int) -> nn.Module:
    if hidden:
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, n_classes))
    linear = nn.Linear(width, n_classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
