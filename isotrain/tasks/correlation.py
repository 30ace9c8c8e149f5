"""Correlations of predictions and labels as scores."""

from typing import Any

import torch
import torchmetrics
from torch import Tensor
from torchmetrics.classification import MulticlassMatthewsCorrCoef
from torchmetrics.functional.regression import spearman_corrcoef
from torchmetrics.utilities import dim_zero_cat


class Spearman(torchmetrics.SpearmanCorrCoef):
    """Rank correlation, in [−1, 1]; ties share their mean rank. NaN if either side is constant."""

    def compute(self) -> Tensor:
        """The value over all batches and processes."""
        value: Tensor = super().compute() if _has_spread(self) else _nan(self)
        return value


class Pearson(torchmetrics.Metric):
    """Linear correlation, in [−1, 1], in float64; NaN if either side is constant.

    That of torchmetrics is NaN too where one value lies far from all others.
    """

    preds: list[Tensor]
    target: list[Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name in ("preds", "target"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Take a batch `[B]` of both."""
        self.preds.append(preds)
        self.target.append(target)

    def compute(self) -> Tensor:
        """The value over all batches and processes."""
        if not _has_spread(self):
            return _nan(self)
        both = torch.stack([dim_zero_cat(self.preds), dim_zero_cat(self.target)])
        return torch.corrcoef(both.cpu().double())[0, 1].to(self.device, torch.float32)


class Matthews(MulticlassMatthewsCorrCoef):
    """Matthews' correlation of classes, in [−1, 1]; 0 if labels or predictions are of one class.

    That of torchmetrics is then another number, which depends on the labels.
    """

    def compute(self) -> Tensor:
        """The value over all batches and processes."""
        confusion = self.confmat.cpu().double()
        true, predicted, n = confusion.sum(1), confusion.sum(0), confusion.sum()
        covariance = n * confusion.trace() - true @ predicted
        spread = ((n**2 - true @ true) * (n**2 - predicted @ predicted)).sqrt()
        value = covariance / spread if spread > 0 else torch.zeros(())
        return value.to(self.device, torch.float32)


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
        if len(self.group) == 0:
            return total / n
        preds, target, group = map(dim_zero_cat, (self.preds, self.target, self.group))
        for number in torch.unique(group):
            x, y = preds[group == number], target[group == number]
            if bool((y != y[0]).any()):
                is_ranked = bool((x != x[0]).any())
                total = total + (len(y) * spearman_corrcoef(x, y) if is_ranked else torch.nan)
                n += len(y)
        return total / n


def _has_spread(metric: Any) -> bool:
    """Whether both predictions and labels have two different values; also without any example."""
    if len(metric.preds) == 0:
        return False
    both = map(dim_zero_cat, (metric.preds, metric.target))
    return all(bool(values.max() > values.min()) for values in both)


def _nan(metric: torchmetrics.Metric) -> Tensor:
    return torch.full((), torch.nan, device=metric.device)
