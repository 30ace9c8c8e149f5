"""The hidden states of a transformers model that somebody else trains: seen, and left as it was.

A sequences, T tokens, D hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from isotrain.training.layer_statistics import evaluating


def backbone_of(model: nn.Module) -> nn.Module:
    """The first transformers model in a module, without its task head.

    So one finds it in a SentenceTransformer, a PEFT model, a module of the user's, and behind the
    wrappers of several devices and of the compiler.

    Raises:
        ValueError: there is none, or one with two stacks of blocks, or with rows in another order.
    """
    found = next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)
    if found is None:
        raise ValueError(
            f"hidden states are those of a transformers model, and {type(model).__name__} holds "
            "none; give a Trainer whose model is, or contains, a PreTrainedModel"
        )
    if found.config.is_encoder_decoder or found.config.model_type == "xlnet":
        raise ValueError(
            f"layers are measured block by block, one after the other, with the sequences first, "
            f"which {type(found).__name__} has not; use a model like BERT or GPT-2"
        )
    return found.base_model


@contextmanager
def recorded(backbone: nn.Module) -> Iterator[list[Tensor]]:
    """A list that receives the L+1 hidden states `[A, T, D]` of each forward pass in the block.

    State 0 is what enters block 1, state l what block l produced. Its blocks are the longest
    `ModuleList` of the model. The hooks are gone behind the block: `output_hidden_states=True`
    would leave some on the model for good.

    Raises:
        ValueError: there is no such list.
    """
    lists = [part for part in backbone.modules() if isinstance(part, nn.ModuleList)]
    if not lists:
        raise ValueError(
            f"layers are measured block by block, and {type(backbone).__name__} has no ModuleList "
            "of blocks; use a model like BERT or GPT-2"
        )
    states: list[Tensor] = []

    def enter(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not states:
            states.append(args[0] if args else kwargs["hidden_states"])

    def leave(_block: nn.Module, _args: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple | list) else output)

    blocks = max(lists, key=len)
    hooks = [blocks[0].register_forward_pre_hook(enter, with_kwargs=True)]
    hooks += [block.register_forward_hook(leave) for block in blocks]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def only_looking(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode without gradients; then its modes and the generators as before.

    >>> with only_looking(layer := nn.Dropout()):
    ...     layer.training, torch.is_grad_enabled()
    (False, False)
    >>> layer.training, torch.is_grad_enabled()
    (True, True)
    """
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with evaluating(model), torch.no_grad(), torch.random.fork_rng(list(devices)):
        yield
