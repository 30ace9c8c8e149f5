"""Tasks over sentence pairs, as one sequence or as two, and their classification."""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.model.heads import LinearHead
from isotrain.tasks.base import Task
from isotrain.tasks.data.encoding import Form, encode_pairs
from isotrain.types import Example, Row


class PairTask(Task):
    """A task whose examples are sentence pairs.

    A subclass adds its data set, name and score, a head, a loss, predictions and metrics.

    Args:
        form: cross (one sequence) or bi (two sequences).
        max_length: tokens per sequence at most.
        head_dropout: share of the pooled features that a training step drops before the head, in
            [0, 1).
    """

    @checked
    def __init__(
        self,
        form: Form = "cross",
        max_length: Annotated[int, Field(ge=3)] = 128,
        head_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
    ) -> None:
        super().__init__()
        self.form, self.max_length, self.head_dropout = form, max_length, head_dropout
        self.n_sequences = 1 if form == "cross" else 2

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Sentence pairs as token ids."""
        pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
        labels = [self.label(row) for row in rows]
        return encode_pairs(pairs, labels, tokenizer, self.form, self.max_length)


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
