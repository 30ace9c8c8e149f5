"""Last block of a BERT-like encoder, computed only for read tokens (K and V for all tokens).

A sequences, T tokens, N tokens in total, R read tokens, D hidden.
"""

from typing import Any

import torch
from torch import Tensor, nn

from isotrain.encoders.attention import Packing, attention


def is_bert_like(block: nn.Module) -> bool:
    """Whether a block is bidirectional and has BERT's submodules (as RoBERTa and ELECTRA)."""
    names = ("attention.self.query", "attention.self.key", "attention.self.value")
    parts = {name for name, _ in block.named_modules()}
    needed = {*names, "attention.output.dense", "intermediate.dense", "output.dense"}
    return needed <= parts and not getattr(block, "is_decoder", True)


def read_tokens_only(
    block: Any,
    read_AT: Tensor,
    hidden: Tensor,
    attention_mask: Tensor | None,
    *_: Any,
    queries: Packing | None = None,
    keys: Packing | None = None,
    **__: Any,
) -> Tensor:
    """The output of a BERT-like block where `read_AT` is true, and 0 elsewhere.

    Input and output are `[A, T, D]`, or `[1, N, D]` packed as in `keys`.
    """
    own = block.attention.self
    number = torch.arange(hidden[..., 0].numel(), device=hidden.device)
    number_AT = number.view_as(read_AT) if keys is None else keys.padded(number)
    places_R = number_AT[read_AT]
    read_1RD = hidden.flatten(0, 1)[places_R][None]

    def heads(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], own.num_attention_heads, -1).transpose(1, 2)

    context, _weights = attention(
        own,
        heads(own.query(read_1RD)),
        heads(own.key(hidden)),
        heads(own.value(hidden)),
        attention_mask,
        dropout=own.dropout.p if own.training else 0.0,
        scaling=own.scaling,
        queries=Packing.to_the_left(read_AT),
        keys=keys,
    )
    attended_1RD = block.attention.output(context.flatten(2), read_1RD)
    output_1RD = block.output(block.intermediate(attended_1RD), attended_1RD)
    whole = hidden.new_zeros(hidden.flatten(0, 1).shape).to(output_1RD.dtype)
    return whole.index_copy(0, places_R, output_1RD[0]).view_as(hidden)
