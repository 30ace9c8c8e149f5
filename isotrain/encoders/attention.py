"""Attention on packed tokens with fast dropout, registered with transformers by name.

A sequences, T tokens of the longest, N tokens in total, h heads, d dimensions per head.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from isotrain.encoders.base import Encoder
from isotrain.encoders.fast_dropout import LaneDropout, lane_dropout

NAME = "isotrain"


class Packing(NamedTuple):
    """Where packed tokens `[N, ...]` are in a padded tensor `[A, T, ...]`.

    >>> packing = Packing.of(torch.tensor([[True, False], [True, True]]))
    >>> packing.padded(torch.tensor([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """

    mask_AT: Tensor  # true for a token, false for a pad
    places_N: Tensor  # index of each token among the A·T
    parts: tuple[Packing, ...] = ()  # groups of sequences of similar length, in this order

    @classmethod
    def of(cls, mask_AT: Tensor) -> Packing:
        """Pack the tokens of a mask in place."""
        return cls(mask_AT, mask_AT.flatten().nonzero().flatten())

    @classmethod
    def to_the_left(cls, chosen_AT: Tensor) -> Packing:
        """Left-align the chosen tokens of each sequence; T is the largest number chosen.

        >>> Packing.to_the_left(torch.tensor([[False, True], [False, False]])).mask_AT.tolist()
        [[True], [False]]
        """
        n_A = chosen_AT.sum(dim=1)
        length = torch.arange(int(n_A.max()), device=n_A.device)
        return cls.of(length < n_A[:, None])

    @classmethod
    def by_length(cls, mask_AT: Tensor, n_parts: int = 4) -> Packing:
        """Pack tokens, shortest sequence first, and split the batch into parts.

        >>> packing = Packing.by_length(torch.tensor([[True, True], [True, False]]), n_parts=2)
        >>> packing.places_N.tolist(), [part.mask_AT.tolist() for part in packing.parts]
        ([2, 0, 1], [[[True]], [[True, True]]])
        """
        rows = mask_AT.sum(dim=1).argsort(stable=True)
        number_AT = torch.arange(mask_AT.numel(), device=mask_AT.device).view_as(mask_AT)
        parts = tuple(cls.to_the_left(mask_AT[some]) for some in rows.chunk(n_parts))
        return cls(mask_AT, number_AT[rows][mask_AT[rows]], parts)

    def packed(self, x: Tensor) -> Tensor:
        """Pack: the tokens `[N, ...]` of `[A, T, ...]`."""
        return x.flatten(0, 1).index_select(0, self.places_N)

    def padded(self, x: Tensor) -> Tensor:
        """Unpack: `[A, T, ...]` with the tokens `[N, ...]`, and 0 elsewhere."""
        whole = x.new_zeros(self.mask_AT.numel(), *x.shape[1:])
        return whole.index_copy(0, self.places_N, x).unflatten(0, self.mask_AT.shape)  # type: ignore[no-any-return, no-untyped-call]


def takes_attention(encoder: Encoder) -> bool:
    """Whether an encoder is a transformers model that can call `attention`."""
    if encoder.model is None or encoder.is_causal:
        return False
    return encoder.model.config._attn_implementation in ("sdpa", NAME)


def use_attention(model: Any) -> None:
    """Make a transformers model use `attention`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    queries: Packing | None = None,
    keys: Packing | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention outputs `[A, T, h, d]` for `query` `[A, h, T, d]`, without weights.

    `queries` and `keys` define how tokens are packed into one sequence, `[1, h, N, d]`; the mask is
    then that of `keys`, else `attention_mask` (Boolean, true for tokens that may be attended to).
    If both are the same packing with parts, attention pads only within each part.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attend = partial(_attend, module, dropout=dropout, scale=scale)
    if keys is not None and keys.parts and queries is keys:
        sizes = [len(part.places_N) for part in keys.parts]
        split = (torch.split(x, sizes, dim=2) for x in (query, key, value))
        outputs = []
        for part, *own in zip(keys.parts, *split, strict=True):
            q, k, v = (_to_heads(part, x) for x in own)
            outputs.append(part.packed(attend(q, k, v, part.mask_AT[:, None, None])))
        return torch.cat(outputs)[None], None
    if keys is not None:
        attention_mask = keys.mask_AT[:, None, None]
        key, value = (_to_heads(keys, x) for x in (key, value))
    if queries is not None:
        query = _to_heads(queries, query)
        if attention_mask is not None and keys is None:
            attention_mask = attention_mask[:, :, :1]  # the same for each query
    output = attend(query, key, value, attention_mask)
    return (output if queries is None else queries.packed(output)[None]), None


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scale: float,
) -> Tensor:
    """`[A, T, h, d]` of padded queries, keys and values."""
    draws_lanes = isinstance(getattr(module, "dropout", None), LaneDropout)
    if dropout > 0 and query.is_cpu and draws_lanes:
        scores = (query * scale) @ key.transpose(2, 3)
        if mask is not None:
            scores = scores.masked_fill_(~mask, float("-inf"))
        output = lane_dropout(scores.softmax(-1), dropout) @ value
    else:
        output = scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)
    return output.transpose(1, 2).contiguous()


def _to_heads(packing: Packing, x: Tensor) -> Tensor:
    """`[1, h, N, d]` to `[A, h, T, d]`."""
    return packing.padded(x[0].transpose(0, 1)).transpose(1, 2)
