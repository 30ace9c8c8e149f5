"""Trial of an encoder on a small padded batch: its traits are measured, not guessed from its name.

A sequences, T tokens, L blocks, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from isotrain.types import Batch

if TYPE_CHECKING:
    from isotrain.encoders.base import Encoder

LONGEST = 12  # tokens of the first sequence; no multiple of an attention window
# Relative distance of equal states in float32 on a CPU; observed: 1e-6 in BERT, 1e-4 in SmolLM2.
TOLERANCE = 1e-3
TOLERANCE_TF32, TOLERANCE_HALF = 1e-2, 0.1  # on a GPU, and in half precision
FIX = "use another encoder, such as one like BERT or GPT-2"

Run = Callable[[Batch], Sequence[Tensor]]  # to hidden states, L+1 × [A, T, D]


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """The blocks of a transformers model: its longest list of modules outside of other lists.

    Raises:
        ValueError: the model has no such list.
    """
    stacks = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    inner_ids = {id(m) for stack in stacks for m in stack.modules() if m is not stack}
    outer_stacks = [stack for stack in stacks if id(stack) not in inner_ids]
    if not outer_stacks:
        raise ValueError(f"{type(model).__name__} has no ModuleList of blocks; {FIX}")
    return max(outer_stacks, key=len)


def padded_batch(
    sequences: Sequence[Sequence[int]], pad: int, types: Sequence[Sequence[int]] | None = None
) -> Batch:
    """Token ids as a batch padded on the right, one sequence an example; types are 0 if None."""

    def filled(rows: Sequence[Sequence[int]], value: int) -> Tensor:
        return pad_sequence([torch.tensor(row) for row in rows], True, value)

    mask_AT = filled([[1] * len(ids) for ids in sequences], 0)
    type_AT = torch.zeros_like(mask_AT) if types is None else filled(types, 0)
    index_A = torch.arange(len(sequences))
    return Batch(filled(sequences, pad), mask_AT, type_AT, 1 - mask_AT, index_A, index_A)


def shortened(ids: Sequence[int], pad: int) -> Batch:
    """A batch of three starts of a sequence, of different lengths if it has three tokens.

    >>> shortened([5, 6, 7, 8], pad=0).input_ids.tolist()
    [[5, 6, 7, 8], [5, 6, 0, 0], [5, 0, 0, 0]]
    """
    longest = min(len(ids), LONGEST)
    return padded_batch([ids[: max(1, longest // divisor)] for divisor in (1, 2, 4)], pad)


def batch_of(encoder: Encoder) -> Batch:
    """The batch of a trial for an encoder: known tokens, none of them special."""
    tokenizer = encoder.tokenizer
    special_ids = set(tokenizer.all_special_ids)
    ordinary_ids = list(islice((i for i in range(len(tokenizer)) if i not in special_ids), LONGEST))
    ids = (ordinary_ids * LONGEST)[: encoder.max_positions or LONGEST]
    return shortened(ids, tokenizer.pad_token_id or 0)


def check_states(model: nn.Module, run: Run, reference: Run, batch: Batch) -> None:
    """Raise a ValueError unless recorded states are transformers' own, and a text's alone.

    Recorded state L may lack a final norm that the model's own one has.

    Args:
        model: of transformers, in evaluation mode.
        run: recorded states.
        reference: the states that transformers gives for `output_hidden_states`.
        batch: with pads.
    """
    name, settings = type(model).__name__, _settings(model)
    states, refs = run(batch), reference(batch)
    if len(states) != len(refs):
        raise ValueError(
            f"{name} has {len(refs)} hidden states, and {len(states)} are seen at its blocks; {FIX}"
        )
    if not all(bool(torch.isfinite(x).all()) for x in states):
        raise ValueError(
            f"the weights of {name} give states that are not finite; load the checkpoint of a "
            "training that has not diverged"
        )
    for layer, pair in enumerate(zip(states[:-1], refs[:-1], strict=True)):
        if (gap := distance(*pair, batch.attention_mask)) > tolerance(pair[0]):
            raise ValueError(
                f"hidden state {layer} of {name} is not what its blocks show: they differ by "
                f"{gap:.2g} of the norm; {FIX}"
            )
    check_pads(name, run, batch)
    if changes := [f"{part} ({setting})" for part, setting in sorted(settings ^ _settings(model))]:
        raise ValueError(
            f"a forward pass changes {name}: {changes[0]}; its states would depend on the texts "
            f"before; {FIX}"
        )


def check_pads(name: str, run: Run, batch: Batch) -> None:
    """Raise a ValueError if the states of a text in a padded batch are not those of it alone."""
    batch_states = run(batch)
    for row, length in enumerate(batch.attention_mask.sum(dim=1).tolist()):
        single_states = run(padded_batch([batch.input_ids[row, :length].tolist()], pad=0))
        for layer, (state, batch_state) in enumerate(zip(single_states, batch_states, strict=True)):
            if (gap := distance(state, batch_state[row : row + 1, :length])) > tolerance(state):
                raise ValueError(
                    f"the states of a text depend on the pads of its batch in {name}: state "
                    f"{layer} differs by {gap:.2g} of the norm from that of the text alone; {FIX}"
                )


def check_own(encoder: Encoder) -> None:
    """`check_pads` for an encoder that is no `TransformerEncoder`."""

    def run(batch: Batch) -> Sequence[Tensor]:
        output = encoder(batch, {})
        return (*output.hidden_states, output.last)

    with in_evaluation(encoder), torch.no_grad():
        check_pads(type(encoder).__name__, run, batch_of(encoder))


def distance(state: Tensor, other: Tensor, mask_AT: Tensor | None = None) -> float:
    """Largest distance of two states of a token, relative to their norm; infinite if not alike.

    >>> distance(torch.ones(1, 2, 4), torch.ones(1, 2, 4)), distance(torch.ones(1), torch.ones(2))
    (0.0, inf)
    """
    if state.shape != other.shape:
        return float("inf")
    a, b = (x.detach().double().cpu() for x in (state, other))
    norm = torch.maximum(a.norm(dim=-1), b.norm(dim=-1))
    gap = (a - b).norm(dim=-1) / norm.clamp_min(torch.finfo(torch.float32).tiny)
    if mask_AT is not None:
        gap = gap[mask_AT.bool().cpu()]
    return float(gap.nan_to_num(nan=float("inf")).max()) if gap.numel() else 0.0


def tolerance(x: Tensor) -> float:
    """The relative distance up to which such states count as equal."""
    if x.dtype not in (torch.float32, torch.float64):
        return TOLERANCE_HALF
    return TOLERANCE if x.device.type == "cpu" else TOLERANCE_TF32


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; modes, hooks and random generators are restored.

    `output_hidden_states=True` leaves hooks on a transformers model, which then cannot be pickled.
    """
    devices = {p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"}
    mark = "_output_capturing_hooks_installed"
    states = [
        (module, module.training, set(module._forward_hooks), mark in vars(module))
        for module in model.modules()
    ]
    with torch.random.fork_rng(list(devices)):
        model.eval()
        try:
            yield
        finally:
            for module, mode, hook_ids, is_marked in states:
                module.training = mode
                for hook_id in module._forward_hooks.keys() - hook_ids:
                    del module._forward_hooks[hook_id]
                if not is_marked:
                    vars(module).pop(mark, None)


def _settings(model: nn.Module) -> set[tuple[str, str]]:
    """Names and plain values of the attributes of a model's modules."""
    return {
        (name or type(model).__name__, f"{key}={value}")
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, str | int | float) and not key.startswith("_")
    }
