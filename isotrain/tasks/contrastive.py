"""Tasks for contrastive training: no task loss, evaluated on STS-B.

B batch, P vectors per example, D hidden.
"""

from abc import abstractmethod
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.model.heads import CosineHead
from isotrain.tasks.data.encoding import encode_pairs
from isotrain.tasks.data.sources import Source
from isotrain.tasks.presets import preset
from isotrain.tasks.regression import Regression
from isotrain.types import Example, Row

STSB = preset("stsb").data_set  # its dev and test are scored
SENTENCES = ("sentence1", "sentence2", "sentence3")  # of a training example: the first n of them


class FirstPairCosine(CosineHead):
    """Cosine of the first two vectors of an example, or 0 if it has only one; `[B, 1]`.

    >>> import torch
    >>> FirstPairCosine()(torch.ones(2, 1, 4)).tolist()
    [[0.0], [0.0]]
    """

    def forward(self, pooled_BPD: Tensor) -> Tensor:  # noqa: N803
        """`[B, 1]` in [−1, 1]."""
        if pooled_BPD.shape[1] == 1:
            return pooled_BPD.new_zeros(len(pooled_BPD), 1)
        return super().forward(pooled_BPD[:, :2])


class Contrastive(Regression):
    """Sentences for training objectives; dev and test are STS-B, scored by cosine.

    Training examples have the label 0. A task adds `training_rows`, its `data_sets` and its name,
    and sets `n_sequences` if a training example has several sentences; evaluation has two.

    Args:
        max_length: maximum tokens of an evaluated sentence.
        train_length: maximum tokens of a training sentence.
        prefix: text before each sentence, such as `query: ` of E5.
    """

    has_labels = False

    @checked
    def __init__(
        self,
        max_length: Annotated[int, Field(ge=3)] = 128,
        train_length: Annotated[int, Field(ge=3)] = 32,
        prefix: str = "",
    ) -> None:
        pair = SENTENCES[:2]
        super().__init__(
            *(self.name, pair, "score", 0.0, 5.0, "bi", max_length),
            head_dropout=0.0,
            has_loss=False,
            prefix=prefix,
        )
        self.data_set = STSB
        self.train_length, self.n_sequences = train_length, 1

    @abstractmethod
    def training_rows(self, source: Source) -> list[Row]:
        """Examples with `sentence1` and any further sentences."""

    def once(self, sentences: list[tuple[str, str]]) -> dict[str, str]:
        """Unique sentences, each with its first origin; duplicates are counted."""
        origins = dict(reversed(sentences))
        self.leave_out("train: repeated", len(sentences) - len(origins))
        return {sentence: origins[sentence] for sentence, _ in sentences}

    def rows_of(self, source: Source, split: str) -> list[Row]:
        """Sentences of train, scored pairs of dev and test."""
        return self.training_rows(source) if split == "train" else super().rows_of(source, split)

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Encode each sentence as a sequence; examples with a score keep it as their label."""
        if rows and self.data_set.target in rows[0]:
            return super().encode(rows, tokenizer)
        names, prefix = SENTENCES[: self.n_sequences], self.prefix[0]
        texts = [tuple(prefix + row[name] for name in names) for row in rows]
        labels, limit = [0.0] * len(rows), "task.train_length"
        return encode_pairs(texts, labels, tokenizer, "bi", self.train_length, limit=limit)

    def build_head(self, width: int, n_vectors: int) -> nn.Module:
        """The cosine of a pair; no parameters."""
        return FirstPairCosine()
