"""Classification of sentence pairs: head, loss, predictions and score."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isotrain.model.heads import LinearHead
from isotrain.tasks.pairs import PairTask
from isotrain.types import Row


class PairClassification(PairTask):
    """Sentence pairs in the classes of a data set, scored by accuracy. Arguments as `PairTask`."""

    monitor = "accuracy"

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """Logits of the classes."""
        n_classes = len(self.data_set.classes)
        return LinearHead(width, n_vectors, n_outputs=n_classes, dropout=self.head_dropout)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy, in nats."""
        return nn.functional.cross_entropy(logits, labels)

    def predictions(self, logits: Tensor) -> Tensor:
        """The likeliest class `[B]`."""
        return torch.argmax(logits, dim=1)

    def metrics(self) -> Any:
        """Accuracy over all examples, in [0, 1]."""
        from torchmetrics import MetricCollection  # here: the check of arguments need not wait
        from torchmetrics.classification import MulticlassAccuracy

        n_classes = len(self.data_set.classes)
        accuracy = MulticlassAccuracy(num_classes=n_classes, average="micro")
        return MetricCollection({"accuracy": accuracy})

    def label(self, row: Row) -> int:
        """The number of the class."""
        return int(row[self.data_set.target])
