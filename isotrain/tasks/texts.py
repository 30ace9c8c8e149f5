"""Tasks on one or two texts: the base class of classification and regression."""

from collections.abc import Mapping, Sequence
from typing import Any

from isotrain.tasks.base import Task
from isotrain.tasks.data.encoding import Form, encode_pairs
from isotrain.tasks.data.sources import DataSet
from isotrain.types import Example, Row


class TextTask(Task):
    """A task whose examples are one text or two.

    A subclass adds a head, a loss, predictions and metrics.

    Args:
        name: of the task, its runs' folder and its data set.
        text: columns of the texts, one or two.
        label: column of the label.
        kind: type of the label, int (a class) or float (a score).
        form: cross (one sequence) or bi (a sequence for each of two texts).
        max_length: tokens per sequence at most.
        head_dropout: share of the pooled features that a training step drops before the head, in
            [0, 1).
        prefix: text before each text, or one for each column, such as `query: ` of E5.
        data_set: further fields of `DataSet`: where source=hub and source=local find it.

    Raises:
        ValueError: `form=bi` of one text, another number of prefixes than of texts, or a label that
            is one of the texts.
    """

    def __init__(
        self,
        name: str,
        text: Sequence[str],
        label: str,
        kind: type,
        form: Form,
        max_length: int,
        head_dropout: float,
        prefix: str | Sequence[str],
        data_set: Mapping[str, Any],
    ) -> None:
        super().__init__()
        if form == "bi" and len(text) != 2:
            raise ValueError(
                f"form=bi compares the vectors of two texts, and task.text={list(text)} names one; "
                "use form=cross"
            )
        if label in text:
            raise ValueError(
                f"task.label={label} must be another column than those of task.text={list(text)}"
            )
        self.prefix = [prefix] * len(text) if isinstance(prefix, str) else list(prefix)
        if len(self.prefix) != len(text):
            raise ValueError(
                f"prefix must be a text, or one for each of task.text={list(text)}, got "
                f"{self.prefix}"
            )
        self.name, self.text, self.form = name, list(text), form
        self.max_length, self.head_dropout = max_length, head_dropout
        self.n_sequences = len(text) if form == "bi" else 1
        fields = {**dict.fromkeys(text, str), label: kind}
        self.data_set = DataSet(name=name, fields=fields, target=label, **data_set)

    def check_row(self, row: Row) -> None:
        """Reject an example without any text; one of two may be empty."""
        if not any(row[name].strip() for name in self.text):
            raise ValueError(f"{row['at']}: {' and '.join(self.text)} must hold a text, got none")

    def texts(self, row: Row) -> tuple[str, ...]:
        """The texts of an example, each after its prefix."""
        pairs = zip(self.prefix, self.text, strict=True)
        return tuple(prefix + row[name] for prefix, name in pairs)

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """The texts as token ids."""
        labels = [self.label(row) for row in rows]
        return encode_pairs(
            list(map(self.texts, rows)), labels, tokenizer, self.form, self.max_length
        )
