"""Trial of an encoder on a small padded batch: what its architecture does, in place of guesses.

A sequences, T tokens, L blocks, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isotrain.types import Batch

if TYPE_CHECKING:
    from isotrain.encoders.base import Encoder

LENGTHS = (12, 7, 3)  # tokens of the sequences; 12 is no multiple of an attention window
ROUNDING = 1e-5  # relative distance of equal states in float32 on a CPU; seen: 2e-6 at most
MOST_APART = 10 * ROUNDING
MOST_APART_TF32, MOST_APART_HALF = 1e-2, 0.1  # on a GPU, and in half precision
FIX = "use another encoder, such as one like BERT or GPT-2"

States = Sequence[Tensor]  # L+1 × [A, T, D]
Run = Callable[[Tensor, Tensor], States]  # token ids and attention mask [A, T] to hidden states


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """The blocks of a transformers model: its longest list of modules outside of other lists.

    Raises:
        ValueError: the model has no such list.
    """
    inside = {
        id(part)
        for one in model.modules()
        if isinstance(one, nn.ModuleList)
        for part in one.modules()
        if part is not one
    }
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and id(m) not in inside]
    if not lists:
        raise ValueError(f"{type(model).__name__} has no ModuleList of blocks; {FIX}")
    return max(lists, key=len)


def trial_ids(special: Sequence[int], n_ids: int, most: int | None = None) -> list[list[int]]:
    """Token ids of the trial's sequences, without special tokens; `most` tokens at most.

    >>> trial_ids([0, 1], 5, most=4)
    [[2, 3, 4, 2], [3, 4, 2, 3], [4, 2, 3]]
    """
    known = [token for token in range(min(n_ids, 99)) if token not in special] or [0]
    lengths = [min(n, most or n) for n in LENGTHS]
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    return [
        [known[(start + t) % len(known)] for t in range(n)]
        for start, n in zip(starts, lengths, strict=True)
    ]


def padded(sequences: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Lists as one tensor `[A, T]`, filled up at the end."""
    longest = max(map(len, sequences))
    return torch.tensor([[*one, *[fill] * (longest - len(one))] for one in sequences])


def check_states(
    name: str, run: Run, own: Run, sequences: Sequence[Sequence[int]], pad: int
) -> None:
    """Raise a ValueError if recorded states are not those of transformers, or depend on pads.

    Recorded state L may lack a final norm that the model's own one has.

    Args:
        name: of the model's class, for the message.
        run: recorded states.
        own: the states that transformers gives for `output_hidden_states`.
        sequences: token ids of different lengths.
        pad: id of the pad token.
    """
    ids_AT = padded(sequences, pad)
    mask_AT = padded([[1] * len(one) for one in sequences], 0)
    together, theirs = run(ids_AT, mask_AT), own(ids_AT, mask_AT)
    if len(together) != len(theirs):
        raise ValueError(
            f"{name} has {len(theirs)} hidden states, and {len(together)} are seen at its blocks; "
            f"{FIX}"
        )
    for level, (seen, given) in enumerate(zip(together[:-1], theirs[:-1], strict=True)):
        if (gap := apart(seen, given, mask_AT)) > most_apart(seen):
            raise ValueError(
                f"hidden state {level} of {name} is not what its blocks show: they differ by "
                f"{gap:.2g} of the norm; {FIX}"
            )
    for row, sequence in enumerate(sequences):
        n = len(sequence)
        alone = run(torch.tensor([sequence]), torch.ones(1, n, dtype=torch.long))
        for level, (one, many) in enumerate(zip(alone, together, strict=True)):
            if (gap := apart(one, many[row : row + 1, :n])) > most_apart(one):
                raise ValueError(
                    f"the states of a text depend on the pads of its batch in {name}: state "
                    f"{level} differs by {gap:.2g} of the norm from that of the text alone; {FIX}"
                )


def apart(one: Tensor, other: Tensor, mask_AT: Tensor | None = None) -> float:
    """Largest distance of two states of a token, relative to their norm; infinite if not alike.

    >>> apart(torch.ones(1, 2, 4), torch.ones(1, 2, 4)), apart(torch.ones(1), torch.ones(2))
    (0.0, inf)
    """
    if one.shape != other.shape:
        return float("inf")
    a, b = (x.detach().double().cpu() for x in (one, other))
    size = torch.maximum(a.norm(dim=-1), b.norm(dim=-1))
    gap = (a - b).norm(dim=-1) / size.clamp_min(torch.finfo(torch.float32).tiny)
    if mask_AT is not None:
        gap = gap[mask_AT.bool().cpu()]
    return float(gap.nan_to_num(nan=float("inf")).max()) if gap.numel() else 0.0


def most_apart(x: Tensor) -> float:
    """The relative distance up to which such states count as equal."""
    if x.dtype not in (torch.float32, torch.float64):
        return MOST_APART_HALF
    return MOST_APART if x.device.type == "cpu" else MOST_APART_TF32


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; modes, hooks and random generators are restored.

    `output_hidden_states=True` leaves hooks on a transformers model, which then cannot be pickled.
    """
    devices = {p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"}
    modes = [(part, part.training) for part in model.modules()]
    hooks = [(part, set(part._forward_hooks)) for part in model.modules()]
    marked = {
        id(part) for part in model.modules() if "_output_capturing_hooks_installed" in vars(part)
    }
    with torch.random.fork_rng(list(devices)):
        model.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode
            for part, before in hooks:
                for number in part._forward_hooks.keys() - before:
                    del part._forward_hooks[number]
                if id(part) not in marked:
                    vars(part).pop("_output_capturing_hooks_installed", None)


@contextmanager
def dropping_nothing(model: nn.Module) -> Iterator[None]:
    """Training mode without gradient, at dropout rates that drop nothing; then as it was."""
    rates = [(part, part.p) for part in model.modules() if isinstance(part, nn.Dropout)]
    with as_it_was(model), torch.no_grad():
        model.train()
        for part, _ in rates:
            part.p = 1e-9  # not 0, which could take another path
        try:
            yield
        finally:
            for part, rate in rates:
                part.p = rate


def batch_of(encoder: Encoder) -> Batch:
    """The batch of a trial for an encoder, in one sequence an example."""
    tokenizer = encoder.tokenizer
    sequences = trial_ids(tokenizer.all_special_ids, len(tokenizer), encoder.max_positions)
    device = next(encoder.parameters()).device
    ids_AT = padded(sequences, tokenizer.pad_token_id or 0).to(device)
    mask_AT = padded([[1] * len(one) for one in sequences], 0).to(device)
    none_AT = torch.zeros_like(ids_AT)
    index_A = torch.arange(len(ids_AT), device=device)
    return Batch(ids_AT, mask_AT, none_AT, 1 - mask_AT, index_A, index_A)


def only_after_blocks(encoder: Encoder) -> frozenset[str]:
    """Names of the parameters outside the blocks that no hidden state depends on, but the output.

    Such as GPT-2's final norm, found in the autograd graph. The others outside the blocks act
    before or in them, such as a table of relative positions.
    """
    in_blocks = {id(p) for block in encoder.blocks for p in block.parameters()}
    outside = {n: p for n, p in encoder.named_parameters() if id(p) not in in_blocks}
    trains = [(p, p.requires_grad) for p in outside.values()]
    with as_it_was(encoder), torch.enable_grad():
        for parameter, _ in trains:
            parameter.requires_grad_(True)
        try:
            output = encoder(batch_of(encoder), {})
        finally:
            for parameter, trained in trains:
                parameter.requires_grad_(trained)
    of_states, of_last = behind(*output.hidden_states), behind(output.last)
    return frozenset(n for n, p in outside.items() if id(p) in of_last - of_states)


def behind(*tensors: Tensor) -> set[int]:
    """Ids of the leaves of the autograd graph that tensors depend on.

    >>> x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> behind(2 * x) == {id(x)}
    True
    """
    found: set[int] = set()
    known: set[Any] = set()
    waiting = [x.grad_fn for x in tensors if x.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in known:
            continue
        known.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting += [one for one, _ in node.next_functions if one is not None]
    return found
