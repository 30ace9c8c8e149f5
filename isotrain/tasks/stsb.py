"""STS-B: how similar are two sentences, 0 to 5? (Cer et al. 2017)"""

from __future__ import annotations

import warnings
from typing import Annotated, Any

from torch import Tensor, nn
from torchmetrics import MetricCollection, PearsonCorrCoef, SpearmanCorrCoef

from isotrain.arguments import Bounds, checked
from isotrain.heads import CosineHead, LinearHead
from isotrain.tasks.encoding import Form, encode_pairs
from isotrain.tasks.sources import HIDDEN, DataSet, load_splits
from isotrain.types import Example, Row, Source

DATA = DataSet(
    name="stsb",
    fields={"sentence1": str, "sentence2": str, "score": float},
    target="score",
    hub_id="mteb/stsbenchmark-sts",
    hub_config=None,
    hub_revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831",
    folders=("STS-B",),
)
HIGHEST = 5.0


class STSB:
    """A graded score; scored by Spearman and Pearson correlation.

    Args:
        form: cross regresses the score from one sequence; bi compares two vectors by cosine.
        max_length: tokens per sequence at most.
        head_dropout: share of the pooled features that a training step drops before a linear head.
    """

    data_set = DATA
    name, monitor, mode = "stsb", "spearman", "max"
    n_spans = 0

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

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Rows of each split; test is empty where its scores are hidden (−1).

        Raises:
            ValueError: a score outside 0 to 5; the row is named.
        """
        splits = load_splits(source, DATA)
        splits["test"] = [row for row in splits["test"] if row["score"] != HIDDEN]
        for rows in splits.values():
            for row in rows:
                if not 0 <= row["score"] <= HIGHEST:
                    raise ValueError(f"{row['at']}: score must lie in 0 to 5, got {row['score']}")
        return splits

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Sentence pairs as token ids; labels are scores divided by 5, in [0, 1]."""
        pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
        labels = [float(row["score"]) / HIGHEST for row in rows]
        return encode_pairs(pairs, labels, tokenizer, self.form, self.max_length)

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """The cosine of the pair (bi), or a linear score (cross)."""
        return (
            CosineHead()
            if self.form == "bi"
            else LinearHead(width, n_vectors, n_outputs=1, dropout=self.head_dropout)
        )

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean squared error on the score divided by 5."""
        return nn.functional.mse_loss(logits[:, 0], labels)

    def predictions(self, logits: Tensor) -> Tensor:
        """The predicted score `[B]`, in units of 5."""
        return logits[:, 0].float()

    def metrics(self) -> MetricCollection:
        """Spearman and Pearson correlation over all rows, in [−1, 1]."""
        with warnings.catch_warnings():  # rank correlation has to keep every row: intended
            warnings.filterwarnings("ignore", message=".*will save all targets.*")
            return MetricCollection({"spearman": SpearmanCorrCoef(), "pearson": PearsonCorrCoef()})
