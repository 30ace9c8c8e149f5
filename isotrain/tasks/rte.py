"""RTE: does sentence 1 entail sentence 2? (GLUE; Wang et al. 2019)"""

from __future__ import annotations

from typing import Annotated, Any

from torch import nn

from isotrain.arguments import Bounds, checked
from isotrain.tasks import classification
from isotrain.tasks.encoding import Form, encode_pairs
from isotrain.tasks.sources import DataSet, load_splits
from isotrain.types import Example, Row, Source

DATA = DataSet(
    name="rte",
    fields={"sentence1": str, "sentence2": str, "label": int},
    target="label",
    hub_id="nyu-mll/glue",
    hub_config="rte",
    hub_revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    folders=("RTE",),
    renames=(("premise", "sentence1"), ("hypothesis", "sentence2")),
    classes=("entailment", "not_entailment"),
)


class RTE:
    """Two classes, 0 entailment and 1 not_entailment; scored by accuracy.

    Args:
        form: cross (one sequence) or bi (two sequences, pair features).
        max_length: tokens per sequence at most.
        head_dropout: share of the pooled features that a training step drops before the head.
    """

    data_set = DATA
    name, monitor, mode = "rte", "accuracy", "max"
    n_spans = 0

    loss = staticmethod(classification.loss)
    predictions = staticmethod(classification.predictions)
    metrics = staticmethod(classification.metrics)

    @checked
    def __init__(
        self,
        form: Form = "cross",
        max_length: Annotated[int, Bounds(3)] = 128,
        head_dropout: Annotated[float, Bounds(0, 1)] = 0.1,
    ) -> None:
        self.form, self.max_length = form, max_length
        self.head_dropout = head_dropout
        self.n_sequences = 1 if form == "cross" else 2

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """Logits of the two classes."""
        return classification.build_head(width, n_vectors, self.head_dropout)

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Rows of each split; test is empty where its labels are hidden (−1)."""
        splits = load_splits(source, DATA)
        splits["test"] = classification.with_gold(splits["test"])
        return splits

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Sentence pairs as token ids."""
        pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
        labels = [int(row["label"]) for row in rows]
        return encode_pairs(pairs, labels, tokenizer, self.form, self.max_length)
