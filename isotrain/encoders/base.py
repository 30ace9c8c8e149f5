"""Base class of encoders: token ids in, all L+1 hidden states out.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import nn

from isotrain.encoders.trial import only_after_blocks
from isotrain.types import Batch, Edit, EncoderOutput


class Encoder(nn.Module, ABC):
    """Maps the tokens of a batch to the embedding output and the output of each block.

    A subclass sets `embeddings` and `blocks`, and defines `forward`.

    Args:
        width: D.
        tokenizer: a fast tokenizer.
        source_id: origin of the weights, for the record of a run.
    """

    embeddings: nn.Module  # token ids to hidden state 0
    blocks: Sequence[nn.Module]
    model: Any  # transformers model, used by adapters and re-initialisation; None = none
    max_positions: int | None = None  # maximum sequence length; None = no limit
    frozen_prefix: Any = None  # a `FrozenPrefix`: cached states after frozen blocks, for training
    packs_tokens: bool = False  # in training: linear maps and norms skip pads
    is_causal: bool = False  # tokens attend only to earlier ones: the first sees nothing else

    def __init__(self, width: int, tokenizer: Any, source_id: str) -> None:
        super().__init__()
        self.width, self.tokenizer, self.source_id = width, tokenizer, source_id
        # On the instance: class attributes would shadow modules of these names.
        self.blocks, self.model = (), None

    @property
    def n_blocks(self) -> int:
        """L."""
        return len(self.blocks)

    @cached_property
    def after_blocks(self) -> frozenset[str]:
        """Names of the parameters that act after the blocks alone, such as a final norm's."""
        return only_after_blocks(self)

    @abstractmethod
    def forward(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """Hidden states `[A, T, D]` of the blocks, and the encoder output.

        `after_block[k]` (1-based) edits the input of the block after k, not the recorded states.
        Where `batch.read_mask` is false, the last state is unused and may be 0.
        """
