"""Records that flow through a run, and the small protocols of poolings and metrics.

B batch, T tokens, L blocks, D hidden, Q sequences per example, S spans, P = Q·S vectors per
example, N rows, C outputs.
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
    """One tokenised row: Q sequences of token ids, their target spans, and a label."""

    input_ids: list[list[int]]
    token_type_ids: list[list[int]]
    special_mask: list[list[int]]  # 1 = CLS or SEP
    spans: list[list[tuple[int, int]]] | None  # Q × S half-open token spans
    label: float
    index: int  # number among the examples of its split that have a label


@dataclass  # not frozen: Lightning's precision plugins convert it field by field
class Batch:
    """A padded batch; the Q sequences of the examples are stacked, all first ones first."""

    input_ids: Tensor  # [Q·B, T] token ids
    attention_mask: Tensor  # [Q·B, T] 1 = real token, 0 = pad
    token_type_ids: Tensor  # [Q·B, T] segment ids
    special_mask: Tensor  # [Q·B, T] 1 = CLS, SEP or pad
    labels: Tensor  # [B] class number, or score
    index: Tensor  # [B] number among the examples of the split
    spans: Tensor | None = None  # [Q·B, S, 2] half-open token positions
    n_sequences: int = 1
    read_mask: Tensor | None = None  # [Q·B, T] last states that are read; None = all

    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        """The same batch with every tensor on `device`."""
        moved: dict[str, Any] = {
            f.name: value.to(device, non_blocking=non_blocking)
            if isinstance(value := getattr(self, f.name), Tensor)
            else value
            for f in fields(self)
        }
        return Batch(**moved)


class EncoderOutput(NamedTuple):
    """Output of an encoder: the recorded states, and the tensor that flows on."""

    hidden_states: tuple[Tensor, ...]  # L+1 × [Q·B, T, D], as each block produced them
    last: Tensor  # [Q·B, T, D], after an edit of the last block and a final norm


class SiteEmbeddings(NamedTuple):
    """Input and output of one isotropy layer in one forward pass."""

    before: Tensor  # [N, D]
    after: Tensor  # [N, D]
    ids: Tensor  # [N] unique id of each embedding
    labels: Tensor  # [N] label of the example that each comes from
    whole: tuple[Tensor, Tensor] | None = None  # `before`, `labels` of all processes, if gathered
    keys: Tensor | None = None  # [N] if they are still to be gathered: sorts those of all processes


@dataclass(frozen=True)
class ModelOutput:
    """One forward pass, with the input and output of each isotropy layer."""

    hidden_states: tuple[Tensor, ...]  # 0 = embedding output, l = after block l
    pooled: Tensor  # [B, P, D] after the isotropy layer
    logits: Tensor  # [B, C]
    site_embeddings: dict[str, SiteEmbeddings] = field(default_factory=dict)

    def detach(self) -> ModelOutput:
        """The same without its graph."""
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

    reads: str  # of a sequence: first | last (token), all, or spans (which the task marks)

    def __call__(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Pooled vectors, the P vectors of one example side by side."""

    def n_vectors(self, n_sequences: int, n_spans: int) -> int:
        """P for an example of Q sequences with S spans each."""


class RowMetric(Protocol):
    """A cloud `[N, D]` to one number, or a flat dict of numbers.

    One that needs more than rows has a second argument of that name: `labels` or `groups` `[N]`,
    or the rows `reference` or `positives` `[N, D]`.
    """

    def __call__(self, x: Tensor, **more: Tensor) -> Tensor | dict[str, Tensor]:
        """The value, as 0-d float64 tensors; a ValueError where it is not defined."""
