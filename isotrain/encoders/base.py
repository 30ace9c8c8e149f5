"""The contract of encoders: token ids in, all L+1 hidden states out.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from isotrain.arguments import refuse_misspelt
from isotrain.types import Batch, Edit, EncoderOutput


class Encoder(nn.Module, ABC):
    """Maps the tokens of a batch to the embedding output and the output of each block.

    A subclass sets `embeddings` and `blocks`, and adds `forward`.

    Args:
        width: D.
        tokenizer: a fast tokenizer.
        source_id: where the weights came from, for the record of a run.
    """

    embeddings: nn.Module  # token ids to hidden state 0
    blocks: Sequence[nn.Module]
    model: Any  # of transformers, which adapters and re-initialisation act on; None = there is none
    max_positions: int | None = None  # tokens a sequence may have; None = no limit
    frozen_prefix: Any = None  # a `FrozenPrefix`: training takes states after frozen blocks from it
    packs_tokens: bool = False  # in training: linear maps and norms see no pads
    is_causal: bool = False  # a token sees only those before it: the first one sees nothing

    def __init__(self, width: int, tokenizer: Any, source_id: str) -> None:
        super().__init__()
        self.width, self.tokenizer, self.source_id = width, tokenizer, source_id
        # Of the instance: class attributes would hide modules of these names.
        self.blocks, self.model = (), None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_misspelt(cls, Encoder)

    @property
    def n_blocks(self) -> int:
        """L."""
        return len(self.blocks)

    @abstractmethod
    def forward(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """Hidden states `[A, T, D]`, as the blocks produced them, and what leaves the encoder.

        `after_block[k]` (1-based) rewrites what flows on after block k, and no recorded state.
        Where `batch.read_mask` is false, nobody reads the last state, and it may be 0.
        """
