"""RTE: does sentence 1 entail sentence 2? (GLUE; Wang et al. 2019)"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from isotrain.heads import LinearHead
from isotrain.tasks.encoding import check_form, encode_pairs
from isotrain.tasks.sources import DataSet, load_splits
from isotrain.types import Example, Row

DATA = DataSet(
    name="rte",
    fields=("sentence1", "sentence2", "label"),
    hub_id="nyu-mll/glue",
    hub_config="rte",
    hub_revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
)


class RTE:
    """Two classes, 0 entailment and 1 not_entailment; scored by accuracy.

    Args:
        form: cross (one sequence) or bi (two sequences, pair features).
        max_length: tokens per sequence at most.
    """

    data_set = DATA
    name, monitor, mode = "rte", "accuracy", "max"
    n_spans = 0

    def __init__(self, form: str = "cross", max_length: int = 128) -> None:
        self.form, self.max_length = check_form(form), max_length
        self.n_sequences = 1 if form == "cross" else 2

    def load(self, source: Any) -> dict[str, list[Row]]:
        """Rows of each split; test is empty where its labels are hidden (−1)."""
        splits = load_splits(source, DATA)
        splits["test"] = [row for row in splits["test"] if int(row["label"]) >= 0]
        return splits

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Sentence pairs as token ids."""
        pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
        labels = [int(row["label"]) for row in rows]
        return encode_pairs(pairs, labels, tokenizer, self.form, self.max_length)

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """Logits of the two classes."""
        return LinearHead(width, n_vectors, n_outputs=2)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy, in nats."""
        return nn.functional.cross_entropy(logits, labels)

    def predictions(self, logits: Tensor) -> Tensor:
        """The likelier class `[B]`."""
        return torch.argmax(logits, dim=1)

    def metrics(self) -> MetricCollection:
        """Accuracy over all rows, in [0, 1]."""
        return MetricCollection({"accuracy": MulticlassAccuracy(num_classes=2, average="micro")})
