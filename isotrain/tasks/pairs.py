"""What tasks over sentence pairs share: their keys, the rows of a source, token ids."""

from __future__ import annotations

from typing import Annotated, Any

from isotrain.arguments import Bounds, checked
from isotrain.tasks.data.encoding import Form, encode_pairs
from isotrain.tasks.data.sources import HIDDEN, SPLITS, DataSet, load_split
from isotrain.types import Example, Row, Source


class PairTask:
    """A task whose rows are sentence pairs, given as one sequence or as two.

    A task adds its data set, its name and score, and a head, a loss, predictions and metrics, as
    `Task` in `isotrain/types.py` has them.

    Args:
        form: cross (one sequence) or bi (two sequences).
        max_length: tokens per sequence at most.
        head_dropout: share of the pooled features that a training step drops before the head, in
            [0, 1).
    """

    data_set: DataSet
    has_loss = True
    n_spans: int  # target words in a sequence; a constant where it is 0, which the check reads

    @checked
    def __init__(
        self,
        form: Form = "cross",
        max_length: Annotated[int, Bounds(3)] = 128,
        head_dropout: Annotated[float, Bounds(0, below=1)] = 0.1,
    ) -> None:
        self.form, self.max_length, self.head_dropout = form, max_length, head_dropout
        self.n_sequences = 1 if form == "cross" else 2
        self.left_out: dict[str, int] = {}

    @property
    def data_sets(self) -> tuple[DataSet, ...]:
        """What the source is asked for."""
        return (self.data_set,)

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Rows of each split; those without gold (−1) are left out, which may be all of test.

        Raises:
            ValueError: a row that `check_row` or the data set refuses; the row is named.
        """
        return {split: self.rows_of(source, split) for split in SPLITS}

    def rows_of(self, source: Source, split: str) -> list[Row]:
        """Rows of one split, as `load` has them."""
        rows = self.with_gold(source, self.data_set, split)
        for row in rows:
            self.check_row(row)
        return rows

    def with_gold(self, source: Source, data_set: DataSet, split: str) -> list[Row]:
        """Rows of a split of a data set that have gold; the others are counted."""
        rows = load_split(source, data_set, split)
        if split not in data_set.hides:
            return rows
        kept = [row for row in rows if row[data_set.target] != HIDDEN]
        self.leave_out(f"{split}: no gold", len(rows) - len(kept))
        return kept

    def leave_out(self, what: str, n_rows: int) -> None:
        """Count rows that no example comes from, for the record."""
        if n_rows:
            self.left_out[what] = n_rows

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
