"""Correlations of predictions and labels that are NaN where they are undefined."""

from typing import Any

import torch
import torchmetrics
from torch import Tensor
from torchmetrics.functional.regression import spearman_corrcoef
from torchmetrics.utilities import dim_zero_cat


class _WithSpread(torchmetrics.Metric):
    """A metric that is NaN unless both predictions and labels have two different values."""

    least_2: Tensor  # of predictions, of labels
    most_2: Tensor

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("least_2", torch.full((2,), torch.inf), dist_reduce_fx="min")
        self.add_state("most_2", torch.full((2,), -torch.inf), dist_reduce_fx="max")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Take a batch `[B]` of both."""
        super().update(preds, target)  # type: ignore[safe-super]  # of a subclass
        values = torch.stack([preds, target])
        self.least_2 = torch.minimum(self.least_2, values.amin(1))
        self.most_2 = torch.maximum(self.most_2, values.amax(1))

    def compute(self) -> Tensor:
        """The value over all batches and processes."""
        if not bool((self.most_2 > self.least_2).all()):  # also without any example
            return torch.full((), torch.nan, device=self.device)
        value: Tensor = super().compute()  # type: ignore[safe-super]
        return value


class Spearman(_WithSpread, torchmetrics.SpearmanCorrCoef):
    """Rank correlation, in [−1, 1]; ties share their mean rank."""


class Pearson(_WithSpread, torchmetrics.PearsonCorrCoef):
    """Linear correlation, in [−1, 1]."""


class SpearmanWithin(torchmetrics.Metric):
    """Mean rank correlation within groups, weighted by their examples, in [−1, 1].

    A group with equal labels has nothing to rank and is left out. NaN if no group is left, or if
    one that is has equal predictions.
    """

    preds: list[Tensor]
    target: list[Tensor]
    group: list[Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name in ("preds", "target", "group"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor, group: Tensor) -> None:
        """Take a batch of predictions, labels and group numbers `[B]`."""
        self.preds.append(preds)
        self.target.append(target)
        self.group.append(group)

    def compute(self) -> Tensor:
        """The value over all batches and processes."""
        total, n = torch.zeros((), device=self.device), 0
        if not self.group:
            return total / n
        preds, target, group = map(dim_zero_cat, (self.preds, self.target, self.group))
        for number in torch.unique(group):
            x, y = preds[group == number], target[group == number]
            if bool((y != y[0]).any()):
                is_ranked = bool((x != x[0]).any())
                total = total + (len(y) * spearman_corrcoef(x, y) if is_ranked else torch.nan)
                n += len(y)
        return total / n
