"""Hidden states of a transformers model inside any module, recorded at its blocks by hooks.

A sequences, T tokens, L blocks, D hidden.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from isotrain.encoders.trial import blocks_of, check_states, in_evaluation, shortened
from isotrain.types import Batch


def backbone_of(model: nn.Module) -> nn.Module:
    """The transformers model in a module, without its task head.

    It may be inside a SentenceTransformer, a PEFT model, a user's module, or a wrapper.

    Raises:
        ValueError: there is none, or several, or its blocks are no single list.
    """
    from transformers import PreTrainedModel  # slow import that other encoders do not need

    models: dict[str, Any] = {}  # by name; nested ones are skipped
    for name, module in model.named_modules():
        is_inside = any(name.startswith(f"{outer}.") or not outer for outer in models)
        if isinstance(module, PreTrainedModel) and not is_inside:
            models[name] = module
    if len(models) != 1:
        too_many = f"several ({', '.join(models)}); name one of them by encoder=, or pass it alone"
        too_few = "none; give a module that is, or contains, a PreTrainedModel"
        raise ValueError(
            f"hidden states are those of one transformers model, and {type(model).__name__} holds "
            + (too_many if models else too_few)
        )
    (backbone,) = models.values()
    if backbone.config.is_encoder_decoder:
        raise ValueError(
            f"layers are measured block by block, one after the other, which "
            f"{type(backbone).__name__} does not have; use a model like BERT or GPT-2"
        )
    base_model: nn.Module = backbone.base_model
    return base_model


@contextmanager
def recorded(backbone: nn.Module) -> Iterator[list[Tensor]]:
    """A list that receives the L+1 hidden states `[A, T, D]` of each forward pass in the block.

    State 0 is the input of block 1, state l the output of block l. Modules that were compiled in
    place run as they are, since hooks do not run in them. All is restored at the end.

    Raises:
        ValueError: the model has no list of blocks.
    """
    blocks = blocks_of(backbone)
    states: list[Tensor] = []

    @_disable_dynamo
    def enter(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not states:
            states.append(args[0] if args else kwargs["hidden_states"])

    @_disable_dynamo
    def leave(_block: nn.Module, _args: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple | list) else output)

    compiled_calls = [(module, module._compiled_call_impl) for module in backbone.modules()]
    hooks = [blocks[0].register_forward_pre_hook(enter, with_kwargs=True)]
    hooks += [block.register_forward_hook(leave) for block in blocks]
    try:
        for module, _ in compiled_calls:
            module._compiled_call_impl = None
        yield states
    finally:
        for module, call in compiled_calls:
            module._compiled_call_impl = call
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def check_recorded_states(
    model: nn.Module, backbone: nn.Module, ids: Sequence[int], has_segments: bool
) -> None:
    """Raise a ValueError unless `recorded` gives the hidden states that transformers gives.

    Args:
        model: holds the backbone; it is tried in evaluation mode.
        backbone: the transformers model.
        ids: token ids of a text, whose start is tried in a padded batch.
        has_segments: whether the model takes `token_type_ids`.
    """
    batch = shortened(ids, pad=0).to(next(backbone.parameters()).device)

    with in_evaluation(model), recorded(backbone) as states:

        def run(batch: Batch) -> list[Tensor]:
            states.clear()
            backbone(**arguments_of(batch, has_segments))
            return [state_ATD[:, : batch.input_ids.shape[1]] for state_ATD in states]

        def reference(batch: Batch) -> Sequence[Tensor]:
            arguments = arguments_of(batch, has_segments)
            return backbone(**arguments, output_hidden_states=True).hidden_states or ()

        check_states(backbone, run, reference, batch)


def arguments_of(batch: Batch, has_segments: bool) -> dict[str, Tensor]:
    """The arguments of a transformers model for a batch."""
    arguments = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    return arguments | ({"token_type_ids": batch.token_type_ids} if has_segments else {})
