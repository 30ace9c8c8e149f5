"""The last block of a BERT-like encoder for the tokens that are read: K and V of all, the rest not.

A sequences, T tokens, R tokens read of a sequence at most, D hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isotrain.geometry.rows import put_rows


def is_bert_like(block: nn.Module) -> bool:
    """Whether a block has the parts of BERT's (RoBERTa and ELECTRA have) and sees both ways."""
    names = ("attention.self.query", "attention.self.key", "attention.self.value")
    parts = {name for name, _ in block.named_modules()}
    needed = {*names, "attention.output.dense", "intermediate.dense", "output.dense"}
    return needed <= parts and not getattr(block, "is_decoder", True)


def read_tokens_only(
    block: Any,
    read_AT: Tensor,
    hidden_ATD: Tensor,
    attention_mask: Tensor | None,
    *_: Any,
    **__: Any,
) -> Tensor:
    """The output `[A, T, D]` of a BERT-like block where `read_AT` is true, and 0 elsewhere.

    `attention_mask` is that of `scaled_dot_product_attention`, the same for each query.
    """
    n_read = int(read_AT.sum(dim=1).max())
    place_AR = read_AT.byte().argsort(dim=1, descending=True, stable=True)[:, :n_read]
    width = hidden_ATD.shape[-1]
    read_ARD = hidden_ATD.gather(1, place_AR[..., None].expand(-1, -1, width))
    own = block.attention.self
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def heads(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], own.num_attention_heads, -1).transpose(1, 2)

    context, _weights = ALL_ATTENTION_FUNCTIONS.get(
        own.config._attn_implementation, ALL_ATTENTION_FUNCTIONS["sdpa"]
    )(
        own,
        heads(own.query(read_ARD)),
        heads(own.key(hidden_ATD)),
        heads(own.value(hidden_ATD)),
        None if attention_mask is None else attention_mask[:, :, :1].expand(-1, -1, n_read, -1),
        dropout=own.dropout.p if own.training else 0.0,
        scaling=own.scaling,
    )
    attended_ARD = block.attention.output(context.flatten(2), read_ARD)
    output_ARD = block.output(block.intermediate(attended_ARD), attended_ARD)
    found_AR = read_AT.gather(1, place_AR)
    return put_rows(torch.zeros_like(hidden_ATD), read_AT, output_ARD[found_AR])
