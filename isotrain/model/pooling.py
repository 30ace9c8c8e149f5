"""Pooling: token states `[Q·B, T, D]` to `[B, P, D]`, P = Q·S vectors per example."""

import torch
from torch import Tensor, nn

from isotrain.geometry.rows import wide
from isotrain.types import Batch


def _by_example(pooled_AD: Tensor, n_sequences: int) -> Tensor:
    """Sequence-major `[Q·B, ..., D]` to `[B, P, D]`."""
    width = pooled_AD.shape[-1]
    per_sequence = pooled_AD.reshape(n_sequences, -1, pooled_AD[0].numel() // width, width)
    return per_sequence.transpose(0, 1).reshape(per_sequence.shape[1], -1, width)


class ClsPooling(nn.Module):
    """The first token's last-layer state of each sequence, no tanh: P = Q."""

    reads = "first"

    def n_vectors(self, n_sequences: int, n_spans: int) -> int:
        """P = Q."""
        return n_sequences

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """`[B, Q, D]`."""
        return _by_example(cls_pool(hidden), batch.n_sequences)


class LastPooling(ClsPooling):
    """The last real token's state of each sequence, for causal decoders: P = Q."""

    reads = "last"

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """`[B, Q, D]`."""
        return _by_example(last_pool(hidden, batch.attention_mask), batch.n_sequences)


class MeanPooling(ClsPooling):
    """The mean over the real tokens of each sequence, including CLS and SEP: P = Q."""

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


def cls_pool(hidden_ATD: Tensor) -> Tensor:
    """The first token's state `[A, D]`, with no further layer on it."""
    return hidden_ATD[:, 0]


def last_pool(hidden_ATD: Tensor, mask_AT: Tensor) -> Tensor:
    """State `[A, D]` of the last token where `mask` is non-zero; pads may be on either side."""
    position_T = torch.arange(hidden_ATD.shape[1], device=hidden_ATD.device)
    last_A = (position_T * (mask_AT != 0)).argmax(dim=1)
    return hidden_ATD[torch.arange(len(hidden_ATD), device=hidden_ATD.device), last_A]


def mean_pool(hidden_ATD: Tensor, mask_AT: Tensor) -> Tensor:
    """Mean `[A, D]` over the tokens where `mask` is non-zero, including CLS and SEP."""
    wide_ATD = wide(hidden_ATD)
    weight_AT1 = mask_AT[..., None].to(wide_ATD.dtype)
    mean_AD = (wide_ATD * weight_AT1).sum(dim=1) / weight_AT1.sum(dim=1).clamp_min(1.0)
    return mean_AD.to(hidden_ATD.dtype)


def span_pool(hidden_ATD: Tensor, spans_AS2: Tensor) -> Tensor:
    """Mean state `[A, S, D]` over each half-open token span."""
    position_T = torch.arange(hidden_ATD.shape[1], device=hidden_ATD.device)
    start_AS1, stop_AS1 = spans_AS2[..., :1], spans_AS2[..., 1:]
    with torch.autocast(hidden_ATD.device.type, enabled=False):
        wide_ATD = wide(hidden_ATD)
        inside_AST = ((position_T >= start_AS1) & (position_T < stop_AS1)).to(wide_ATD.dtype)
        mean_ASD = (inside_AST @ wide_ATD) / inside_AST.sum(dim=-1, keepdim=True).clamp_min(1.0)
    return mean_ASD.to(hidden_ATD.dtype)
