"""What tasks over sentence pairs share: their keys, the rows of a source, token ids."""

from __future__ import annotations

from typing import Annotated, Any

from isotrain.arguments import Bounds, checked
from isotrain.tasks.encoding import Form, encode_pairs
from isotrain.tasks.sources import HIDDEN, DataSet, load_splits
from isotrain.types import Example, Row, Source


class PairTask:
    """A task whose rows are sentence pairs, given as one sequence or as two.

    A task adds its data set, its name and score, and a head, a loss, predictions and metrics, as
    `Task` in `isotrain/types.py` has them.

    Args:
        form: cross (one sequence) or bi (two sequences).
        max_length: tokens per sequence at most.
        head_dropout: share of the pooled features that a training step drops before the head.
    """

    data_set: DataSet
    n_spans: int  # target words in a sequence; a constant where it is 0, which the check reads

    @checked
    def __init__(
        self,
        form: Form = "cross",
        max_length: Annotated[int, Bounds(3)] = 128,
        head_dropout: Annotated[float, Bounds(0, 1)] = 0.1,
    ) -> None:
        self.form, self.max_length, self.head_dropout = form, max_length, head_dropout
        self.n_sequences = 1 if form == "cross" else 2

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Rows of each split; test is empty where its targets are hidden (−1).

        Raises:
            ValueError: a row that `check_row` or the data set refuses; the row is named.
        """
        splits = load_splits(source, self.data_set)
        splits["test"] = [row for row in splits["test"] if row[self.data_set.target] != HIDDEN]
        for rows in splits.values():
            for row in rows:
                self.check_row(row)
        return splits

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Sentence pairs as token ids."""
        pairs = [(row["sentence1"], row["sentence2"]) for row in rows]
        labels = [self.label(row) for row in rows]
        return encode_pairs(pairs, labels, tokenizer, self.form, self.max_length)

    def check_row(self, row: Row) -> None:
        """Raise a ValueError where a row is none of this task."""

    def label(self, row: Row) -> float:
        """What the loss compares with."""
        return float(row[self.data_set.target])
