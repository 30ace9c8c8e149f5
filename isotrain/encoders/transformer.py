"""An encoder around any BERT-like transformers model, with its own record of hidden states.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.types import Batch, Edit, EncoderOutput

BLOCK_PATHS = ("encoder.layer", "transformer.layer", "encoder.layers", "layers", "h")
EMBEDDING_PATHS = ("embeddings", "wte", "embed_tokens")


class TransformerEncoder(nn.Module):
    """All L+1 hidden states of a transformers model, recorded at its blocks.

    State 0 is what enters block 1 (the embedding output), state l what block l produced. An
    edit after block k changes what flows on, never the record. The model is put in train mode
    (`from_pretrained` returns it in evaluation mode, with dropout off), must be float32, and
    loses its pooler, which nothing here uses.

    Args:
        model: a transformers base model.
        tokenizer: its fast tokenizer.
        source_id: where the weights came from, for the record of the run.

    Raises:
        ValueError: no list of blocks is found, or the weights are not float32.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, source_id: str) -> None:
        super().__init__()
        dtypes = {p.dtype for p in model.parameters()}
        if dtypes != {torch.float32}:
            raise ValueError(
                f"training needs float32 weights, got {sorted(map(str, dtypes))}; load with "
                "dtype=torch.float32"
            )
        if isinstance(getattr(model, "pooler", None), nn.Module):
            model.pooler = None  # type: ignore[assignment]
        self.model = model.train()
        self.tokenizer, self.source_id = tokenizer, source_id
        self.blocks: nn.ModuleList = _find(model, BLOCK_PATHS, nn.ModuleList)
        self.embeddings: nn.Module = _find(model, EMBEDDING_PATHS, nn.Module)
        self.n_blocks = len(self.blocks)
        self.width = int(model.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self._takes_segments = "token_type_ids" in inspect.signature(model.forward).parameters
        self._states: list[Tensor] | None = None
        self._edits: Mapping[int, Edit] = {}
        self.blocks[0].register_forward_pre_hook(self._record_embedding, with_kwargs=True)
        for number, block in enumerate(self.blocks, start=1):
            block.register_forward_hook(partial(self._record_block, number))

    def forward(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """Hidden states of a batch; `after_block[k]` (1-based) rewrites what leaves block k."""
        segments = {"token_type_ids": batch.token_type_ids} if self._takes_segments else {}
        self._states, self._edits = [], after_block
        try:
            output = self.model(
                input_ids=batch.input_ids, attention_mask=batch.attention_mask, **segments
            )
            states = tuple(self._states)
        finally:
            self._states, self._edits = None, {}
        return EncoderOutput(states, output.last_hidden_state)

    def _record_embedding(self, block: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if self._states is not None:
            self._states.append(args[0] if args else kwargs["hidden_states"])

    def _record_block(self, number: int, block: nn.Module, args: Any, output: Any) -> Any:
        if self._states is None:
            return None
        hidden_ATD = output[0] if isinstance(output, tuple) else output
        self._states.append(hidden_ATD)
        if number not in self._edits:
            return None
        edited_ATD = self._edits[number](hidden_ATD)
        return (edited_ATD, *output[1:]) if isinstance(output, tuple) else edited_ATD


def _find(model: nn.Module, paths: tuple[str, ...], kind: type) -> Any:
    for path in paths:
        try:
            part = attrgetter(path)(model)
        except AttributeError:
            continue
        if isinstance(part, kind):
            return part
    raise ValueError(
        f"{type(model).__name__} has none of {', '.join(paths)}; isotrain needs to see the "
        "blocks of an encoder: use a BERT-like model"
    )
