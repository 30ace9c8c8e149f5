"""The base class of tasks. B batch, P vectors per example, D hidden, C outputs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import HIDDEN, SPLITS, DataSet, Source, load_split
from isotrain.types import Example, Row


class Task(ABC):
    """A task: examples, their encoding, a head, a loss and a score.

    A subclass sets its name, data set and score, and defines `encode`, `build_head`, `loss`,
    `predictions` and `metrics`. It overrides other members if the defaults do not apply.
    """

    name: str
    data_set: DataSet  # of its labelled examples
    monitor: str  # the score's key without its stage, such as accuracy
    text: Sequence[str] = ()  # the fields of an example that are its texts
    mode: str = "max"  # max | min: whether a higher score is better
    form: Form = "cross"  # cross | bi: one sequence an example, or one a sentence
    has_loss: bool = True  # false: objectives alone train, and `loss` is a number of evaluation
    has_labels: bool = True  # whether labels of training examples have a meaning
    scale: tuple[float, float] | None = None  # scores that are labels 0 and 1; None = no scores
    head_dropout: float = 0.0
    n_sequences: int = 1  # of a training example; one of evaluation may have others
    n_spans: int = 0  # target words in a sequence; a property where arguments decide

    def __init__(self) -> None:
        self.left_out: dict[str, int] = {}  # examples that `load` leaves out, by reason

    @property
    def data_sets(self) -> tuple[DataSet, ...]:
        """The data sets that it reads."""
        return (self.data_set,)

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Examples of each split that have a gold label; hidden ones (−1) are left out.

        Raises:
            ValueError: an example that `check_row` or the data set rejects; the message names it.
        """
        return {split: self.rows_of(source, split) for split in SPLITS}

    def rows_of(self, source: Source, split: str) -> list[Row]:
        """Examples of one split."""
        rows = self.with_gold(source, self.data_set, split)
        for row in rows:
            self.check_row(row)
        return rows

    def with_gold(self, source: Source, data_set: DataSet, split: str) -> list[Row]:
        """Examples of a split that have a gold label; the others are counted."""
        rows = load_split(source, data_set, split)
        if split not in data_set.hides:
            return rows
        labelled_rows = [row for row in rows if row[data_set.target] != HIDDEN]
        self.leave_out(f"{split}: no gold", len(rows) - len(labelled_rows))
        return labelled_rows

    def leave_out(self, reason: str, n_rows: int) -> None:
        """Count what is left out, by split and reason ("test: no gold"), for the record."""
        if n_rows:
            self.left_out[reason] = n_rows

    def check_row(self, row: Row) -> None:  # noqa: B027 - most tasks have nothing to check
        """Raise a ValueError for an example that does not fit the task."""

    def labels(self) -> str:
        """How labels are encoded, for the terminal; empty if there is nothing to report."""
        return ""

    def label(self, row: Row) -> float:
        """The target of the loss."""
        return float(row[self.data_set.target])

    @abstractmethod
    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Token ids, labels and spans of examples."""

    @abstractmethod
    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """A module `[B, P, D] -> [B, C]`."""

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The scalar task loss."""

    def training_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The scalar loss of a training step; by default `loss`."""
        return self.loss(logits, labels)

    def see_training(self, rows: Sequence[Row]) -> None:  # noqa: B027 - most tasks need none
        """Called once with the training examples, after the changes of `data`."""

    @abstractmethod
    def predictions(self, logits: Tensor) -> Tensor:
        """Predictions that the metrics compare with the labels, `[B]`."""

    def groups(self, stage: str, index: Tensor) -> Tensor:
        """The number of the group of each example of val, holdout or test; by default one group."""
        return torch.zeros_like(index)

    @abstractmethod
    def metrics(self) -> Any:
        """A torchmetrics collection that takes (predictions, labels), and `group` by that name."""
