"""What tasks with two classes share: head, loss, predictions, score."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from isotrain.heads import LinearHead
from isotrain.tasks.sources import HIDDEN
from isotrain.types import Row

N_CLASSES = 2


def build_head(width: int, n_vectors: int, dropout: float) -> nn.Module:
    """Logits of the classes."""
    return LinearHead(width, n_vectors, n_outputs=N_CLASSES, dropout=dropout)


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy, in nats."""
    return nn.functional.cross_entropy(logits, labels)


def predictions(logits: Tensor) -> Tensor:
    """The likelier class `[B]`."""
    return torch.argmax(logits, dim=1)


def metrics() -> MetricCollection:
    """Accuracy over all rows, in [0, 1]."""
    accuracy = MulticlassAccuracy(num_classes=N_CLASSES, average="micro")
    return MetricCollection({"accuracy": accuracy})


def with_gold(rows: list[Row]) -> list[Row]:
    """The rows whose label is not hidden."""
    return [row for row in rows if row["label"] != HIDDEN]
