"""Base class of encoders: token ids in, all L+1 hidden states out.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.encoders.trial import batch_of, in_evaluation
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
        """Names of the parameters that act after the blocks alone, such as a final norm's.

        They are outside of embeddings and blocks, and no hidden state has a gradient for them,
        but the output has. Others outside act before or in the blocks (relative positions).
        """
        inner_ids = {id(p) for part in (self.embeddings, *self.blocks) for p in part.parameters()}
        outer = {name: p for name, p in self.named_parameters() if id(p) not in inner_ids}
        if not outer:
            return frozenset()
        parameters, trainable = [*outer.values()], [p.requires_grad for p in outer.values()]

        def used(*states: Tensor) -> set[str]:
            sums = [x.sum() for x in states if x.requires_grad]
            gradients = torch.autograd.grad(sums, parameters, retain_graph=True, allow_unused=True)
            return {name for name, grad in zip(outer, gradients, strict=True) if grad is not None}

        with in_evaluation(self), torch.enable_grad():
            for parameter in parameters:
                parameter.requires_grad_(True)
            output = self(batch_of(self), {})
            names = used(output.last) - used(*output.hidden_states)
        for parameter, is_trainable in zip(parameters, trainable, strict=True):
            parameter.requires_grad_(is_trainable)
        return frozenset(names)

    @abstractmethod
    def forward(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """Hidden states `[A, T, D]` of the blocks, and the encoder output.

        `after_block[k]` (1-based) edits the input of the block after k, not the recorded states.
        """
