"""Pooling modules: faces of `geometry.pooling` that give `[B, P, D]`, P = Q·S."""

from __future__ import annotations

from torch import Tensor, nn

from isotrain.geometry.pooling import cls_pool, last_pool, mean_pool, span_pool
from isotrain.types import Batch


def _by_example(pooled_AD: Tensor, n_sequences: int) -> Tensor:
    """Sequence-major `[Q·B, ..., D]` to `[B, P, D]`."""
    width = pooled_AD.shape[-1]
    per_sequence = pooled_AD.reshape(n_sequences, -1, pooled_AD[0].numel() // width, width)
    return per_sequence.transpose(0, 1).reshape(per_sequence.shape[1], -1, width)


class _OneForEach(nn.Module):
    """A pooling that gives one vector for each sequence."""

    def n_vectors(self, n_sequences: int, n_spans: int) -> int:
        """P = Q."""
        return n_sequences


class ClsPooling(_OneForEach):
    """The first token's last-layer state of each sequence, no tanh: P = Q."""

    reads = "first"

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """`[B, Q, D]`."""
        return _by_example(cls_pool(hidden), batch.n_sequences)


class LastPooling(_OneForEach):
    """The last real token's state of each sequence, what a causal decoder ends on: P = Q."""

    reads = "last"

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """`[B, Q, D]`."""
        return _by_example(last_pool(hidden, batch.attention_mask), batch.n_sequences)


class MeanPooling(_OneForEach):
    """The mean over the real tokens of each sequence, CLS and SEP among them: P = Q."""

    reads = "all"

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """`[B, Q, D]`."""
        return _by_example(mean_pool(hidden, batch.attention_mask), batch.n_sequences)


class SpanPooling(nn.Module):
    """The mean over the tokens of each marked span: P = Q·S."""

    reads = "spans"

    def n_vectors(self, n_sequences: int, n_spans: int) -> int:
        """P = Q·S."""
        return n_sequences * n_spans

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """`[B, Q·S, D]`; the task must give spans."""
        if batch.spans is None:
            raise ValueError("pooling=spans needs spans, this batch has none; use cls or mean")
        return _by_example(span_pool(hidden, batch.spans), batch.n_sequences)
