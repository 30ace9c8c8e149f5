"""WiC: does a word have the same sense in two sentences? (Pilehvar and Camacho-Collados 2019)"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from torch import nn

from isotrain.arguments import Bounds, checked
from isotrain.tasks import classification
from isotrain.tasks.encoding import Form, encode_pairs
from isotrain.tasks.sources import DataSet, load_splits
from isotrain.types import Example, Row, Source

DATA = DataSet(
    name="wic",
    fields={
        **dict.fromkeys(("word", "sentence1", "sentence2"), str),
        **dict.fromkeys(("start1", "end1", "start2", "end2", "label"), int),
    },
    target="label",
    hub_id="aps/super_glue",
    hub_config="wic",
    hub_revision="3de24cf8022e94f4ee4b9d55a6f539891524d646",
    folders=("WiC",),
    classes=("False", "True"),
)


class WiC:
    """Two classes, 1 = same sense; scored by accuracy. The target spans go with every batch.

    Args:
        form: cross (one sequence) or bi (two).
        max_length: tokens per sequence at most.
        prompt: what stands before sentence 1: `word` puts "word: ", so that CLS pooling knows
            the target; `none` leaves the sentence alone, for span pooling.
        head_dropout: share of the pooled features that a training step drops before the head.
    """

    data_set = DATA
    name, monitor, mode = "wic", "accuracy", "max"

    loss = staticmethod(classification.loss)
    predictions = staticmethod(classification.predictions)
    metrics = staticmethod(classification.metrics)

    @checked
    def __init__(
        self,
        form: Form = "cross",
        max_length: Annotated[int, Bounds(3)] = 128,
        prompt: Literal["word", "none"] = "word",
        head_dropout: Annotated[float, Bounds(0, 1)] = 0.1,
    ) -> None:
        self.form, self.max_length, self.prompt = form, max_length, prompt
        self.head_dropout = head_dropout
        self.n_sequences = 1 if form == "cross" else 2
        self.n_spans = 2 // self.n_sequences

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """Logits of the two classes."""
        return classification.build_head(width, n_vectors, self.head_dropout)

    def load(self, source: Source) -> dict[str, list[Row]]:
        """Rows of each split; test is empty where its labels are hidden (−1).

        Raises:
            ValueError: a target that is not inside its sentence; the row is named.
        """
        splits = load_splits(source, DATA)
        for rows in splits.values():
            for row in rows:
                _check_spans(row)
        splits["test"] = classification.with_gold(splits["test"])
        return splits

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Sentence pairs as token ids, with the token span of the target in each sentence."""
        pairs, spans = [], []
        for row in rows:
            prompt = f"{row['word']}: " if self.prompt == "word" else ""
            shift = len(prompt)
            pairs.append((prompt + row["sentence1"], row["sentence2"]))
            spans.append(
                ((row["start1"] + shift, row["end1"] + shift), (row["start2"], row["end2"]))
            )
        labels = [int(row["label"]) for row in rows]
        return encode_pairs(pairs, labels, tokenizer, self.form, self.max_length, spans)


def _check_spans(row: Row) -> None:
    for number in "12":
        start, end = row["start" + number], row["end" + number]
        length = len(row["sentence" + number])
        if not 0 <= start < end <= length:
            raise ValueError(
                f"{row['at']}: start{number} and end{number} must be the characters of a word in "
                f"sentence{number} (0 to {length}, the end excluded), got {start} and {end}"
            )
