"""Data types of a run, and the protocols of poolings and metrics.

B batch, T tokens, L blocks, D hidden, Q sequences per example, S spans, P = Q·S vectors per
example, N embeddings, C outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol

from torch import Tensor

Row = dict[str, Any]
"""One example as a source gives it: plain text fields and a label."""


@dataclass(frozen=True, slots=True)
class Example:
    """One tokenised example: Q sequences of token ids, their target spans, and a label."""

    input_ids: list[list[int]]
    token_type_ids: list[list[int]]
    special_mask: list[list[int]]  # 1 = CLS or SEP
    spans: list[list[tuple[int, int]]] | None  # Q × S half-open token spans
    label: float
    index: int  # index among the labelled examples of its split
    lost: list[str] = field(default_factory=list)  # what encoding lost of it, see `encode_pairs`


@dataclass  # not frozen: Lightning's precision plugins convert it field by field
class Batch:
    """A padded batch; sequences are stacked, first sequences of all examples first."""

    input_ids: Tensor  # [Q·B, T] token ids
    attention_mask: Tensor  # [Q·B, T] 1 = real token, 0 = pad
    token_type_ids: Tensor  # [Q·B, T] segment ids
    special_mask: Tensor  # [Q·B, T] 1 = CLS, SEP or pad
    labels: Tensor  # [B] class index or score
    index: Tensor  # [B] index among the examples of the split
    spans: Tensor | None = None  # [Q·B, S, 2] half-open token positions
    n_sequences: int = 1

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """The same batch with every tensor on `device`."""
        arguments: dict[str, Any] = {
            f.name: value.to(device, non_blocking=non_blocking)
            if isinstance(value := getattr(self, f.name), Tensor)
            else value
            for f in fields(self)
        }
        return Batch(**arguments)


class EncoderOutput(NamedTuple):
    """Output of an encoder: the recorded states, and the tensor passed on."""

    hidden_states: tuple[Tensor, ...]  # L+1 × [Q·B, T, D], as each block produced them
    last: Tensor  # [Q·B, T, D], after an edit of the last block and a final norm


class SiteEmbeddings(NamedTuple):
    """Input and output of one isotropy layer in one forward pass."""

    before: Tensor  # [N, D]
    after: Tensor  # [N, D]
    ids: Tensor  # [N] unique id of each embedding
    labels: Tensor  # [N] label of the example that each comes from
    whole: tuple[Tensor, Tensor] | None = None  # `before`, `labels` of all processes, if gathered


@dataclass(frozen=True)
class ModelOutput:
    """One forward pass, with the input and output of each isotropy layer."""

    hidden_states: tuple[Tensor, ...]  # 0 = embedding output, l = after block l
    pooled: Tensor  # [B, P, D] after the isotropy layer
    logits: Tensor  # [B, C]
    site_embeddings: dict[str, SiteEmbeddings] = field(default_factory=dict)

    def detach(self) -> ModelOutput:
        """A copy detached from the graph."""
        return ModelOutput(
            tuple(hidden.detach() for hidden in self.hidden_states),
            self.pooled.detach(),
            self.logits.detach(),
            {
                site: SiteEmbeddings(
                    rows.before.detach(), rows.after.detach(), rows.ids, rows.labels
                )
                for site, rows in self.site_embeddings.items()
            },
        )


Edit = Callable[[Tensor], Tensor]


class Pooling(Protocol):
    """Token states `[Q·B, T, D]` to `[B, P, D]`."""

    reads: str  # tokens read per sequence: first | last, all, or spans (marked by the task)

    def __call__(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Pooled vectors `[B, P, D]`."""

    def n_vectors(self, n_sequences: int, n_spans: int) -> int:
        """P for an example of Q sequences with S spans each."""


class RowMetric(Protocol):
    """A cloud `[N, D]` to one number, or a flat dict of numbers.

    A metric that needs more has a second argument of that name: `labels` or `groups` `[N]`, or the
    embeddings `reference` or `positives` `[N, D]`.
    """

    def __call__(self, x: Tensor, **more: Tensor) -> Tensor | dict[str, Tensor]:
        """The value, as 0-d float64 tensors; a ValueError if undefined."""
