"""Trial of an encoder on a small padded batch: its traits are measured, not guessed from its name.

A sequences, T tokens, L blocks, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isotrain.types import Batch

if TYPE_CHECKING:
    from isotrain.encoders.base import Encoder

LONGEST = 12  # tokens of the first sequence; no multiple of an attention window
# Relative distance of equal states in float32 on a CPU; seen: 1e-6 in BERT, 1e-4 in SmolLM2.
TOLERANCE = 1e-3
TOLERANCE_TF32, TOLERANCE_HALF = 1e-2, 0.1  # on a GPU, and in half precision
FIX = "use another encoder, such as one like BERT or GPT-2"

States = Sequence[Tensor]  # L+1 × [A, T, D]
Run = Callable[[Tensor, Tensor], States]  # token ids and attention mask [A, T] to hidden states
Sequences = Sequence[Sequence[int]]  # token ids, of different lengths


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """The blocks of a transformers model: its longest list of modules outside of other lists.

    Raises:
        ValueError: the model has no such list.
    """
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    inner = {id(part) for one in lists for part in one.modules() if part is not one}
    outer = [one for one in lists if id(one) not in inner]
    if not outer:
        raise ValueError(f"{type(model).__name__} has no ModuleList of blocks; {FIX}")
    return max(outer, key=len)


def shortened(ids: Sequence[int]) -> list[list[int]]:
    """Three starts of a sequence, of different lengths if it has three tokens.

    >>> shortened([5, 6, 7, 8])
    [[5, 6, 7, 8], [5, 6], [5]]
    """
    longest = min(len(ids), LONGEST)
    return [list(ids[: max(1, longest // part)]) for part in (1, 2, 4)]


def trial_sequences(tokenizer: Any, n_ids: int, n_tokens: int | None = None) -> list[list[int]]:
    """Token ids of a trial: known tokens, none of them special; at most `n_tokens` each."""
    special = set(getattr(tokenizer, "all_special_ids", ()))
    ordinary = list(islice((token for token in range(n_ids) if token not in special), LONGEST))
    return shortened((ordinary * LONGEST)[: n_tokens or LONGEST])


def padded(sequences: Sequences, fill: int) -> tuple[Tensor, Tensor]:
    """Token ids `[A, T]`, filled up at the end, and their attention mask."""
    longest = max(map(len, sequences))
    ids_AT = torch.tensor([[*one, *[fill] * (longest - len(one))] for one in sequences])
    mask_AT = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in sequences])
    return ids_AT, mask_AT


def check_states(model: nn.Module, run: Run, own: Run, sequences: Sequences, pad: int) -> None:
    """Raise a ValueError unless recorded states are transformers' own, and a text's alone.

    Recorded state L may lack a final norm that the model's own one has.

    Args:
        model: of transformers, in evaluation mode.
        run: recorded states.
        own: the states that transformers gives for `output_hidden_states`.
        sequences: token ids.
        pad: id of the pad token.
    """
    name, before = type(model).__name__, _settings(model)
    batch = padded(sequences, pad)
    seen, given = run(*batch), own(*batch)
    if len(seen) != len(given):
        raise ValueError(
            f"{name} has {len(given)} hidden states, and {len(seen)} are seen at its blocks; {FIX}"
        )
    if not all(bool(torch.isfinite(x).all()) for x in seen):
        raise ValueError(
            f"the weights of {name} give states that are not finite; load the checkpoint of a "
            "training that has not diverged"
        )
    for level, pair in enumerate(zip(seen[:-1], given[:-1], strict=True)):
        if (gap := distance(*pair, batch[1])) > tolerance(pair[0]):
            raise ValueError(
                f"hidden state {level} of {name} is not what its blocks show: they differ by "
                f"{gap:.2g} of the norm; {FIX}"
            )
    check_pads(name, run, sequences, pad)
    if changed := [f"{part} ({key})" for part, key in sorted(before ^ _settings(model))]:
        raise ValueError(
            f"a forward pass changes {name}: {changed[0]}; its states would depend on the texts "
            f"before; {FIX}"
        )


def check_pads(name: str, run: Run, sequences: Sequences, pad: int) -> None:
    """Raise a ValueError if the states of a text in a padded batch are not those of it alone."""
    together = run(*padded(sequences, pad))
    for row, sequence in enumerate(sequences):
        alone = run(*padded([sequence], pad))
        for level, (one, many) in enumerate(zip(alone, together, strict=True)):
            if (gap := distance(one, many[row : row + 1, : len(sequence)])) > tolerance(one):
                raise ValueError(
                    f"the states of a text depend on the pads of its batch in {name}: state "
                    f"{level} differs by {gap:.2g} of the norm from that of the text alone; {FIX}"
                )


def distance(one: Tensor, other: Tensor, mask_AT: Tensor | None = None) -> float:
    """Largest distance of two states of a token, relative to their norm; infinite if not alike.

    >>> distance(torch.ones(1, 2, 4), torch.ones(1, 2, 4)), distance(torch.ones(1), torch.ones(2))
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
        (part, part.training, set(part._forward_hooks), mark in vars(part))
        for part in model.modules()
    ]
    with torch.random.fork_rng(list(devices)):
        model.eval()
        try:
            yield
        finally:
            for part, mode, hooks, is_marked in states:
                part.training = mode
                for number in part._forward_hooks.keys() - hooks:
                    del part._forward_hooks[number]
                if not is_marked:
                    vars(part).pop(mark, None)


@contextmanager
def training_without_dropout(encoder: nn.Module) -> Iterator[None]:
    """The paths of a training step without gradient, and with dropout that drops nothing.

    Modules with a dropout module are in training mode, at a rate that drops nothing. Others are in
    evaluation mode, as they may call dropout by a rate of the configuration.
    """
    drops = [part for part in encoder.modules() if isinstance(part, nn.Dropout)]
    rates = [part.p for part in drops]
    with in_evaluation(encoder), torch.no_grad():
        for part in encoder.modules():
            inside = (part, *part.children())
            part.training = part is encoder or any(isinstance(one, nn.Dropout) for one in inside)
        for part in drops:
            part.p = 1e-9  # not 0, which could take another path
        try:
            yield
        finally:
            for part, rate in zip(drops, rates, strict=True):
                part.p = rate


def batch_of(encoder: Encoder) -> Batch:
    """The batch of a trial for an encoder, one sequence an example."""
    tokenizer = encoder.tokenizer
    sequences = trial_sequences(tokenizer, len(tokenizer), encoder.max_positions)
    device = next(encoder.parameters()).device
    return _batch(*(x.to(device) for x in padded(sequences, tokenizer.pad_token_id or 0)))


def check_own(encoder: Encoder) -> None:
    """`check_pads` for an encoder that is no `TransformerEncoder`."""
    tokenizer = encoder.tokenizer
    sequences = trial_sequences(tokenizer, len(tokenizer), encoder.max_positions)

    def run(ids_AT: Tensor, mask_AT: Tensor) -> States:
        output = encoder(_batch(ids_AT, mask_AT), {})
        return (*output.hidden_states, output.last)

    with in_evaluation(encoder), torch.no_grad():
        check_pads(type(encoder).__name__, run, sequences, tokenizer.pad_token_id or 0)


def _batch(ids_AT: Tensor, mask_AT: Tensor) -> Batch:
    index_A = torch.arange(len(ids_AT), device=ids_AT.device)
    return Batch(ids_AT, mask_AT, torch.zeros_like(ids_AT), 1 - mask_AT, index_A, index_A)


def only_after_blocks(encoder: Encoder) -> frozenset[str]:
    """Names of the parameters outside the blocks that no hidden state depends on, but the output.

    Such as GPT-2's final norm, found in the autograd graph. The others outside the blocks act
    before or in them, such as a table of relative positions.
    """
    in_blocks = {id(p) for block in encoder.blocks for p in block.parameters()}
    outside = {n: p for n, p in encoder.named_parameters() if id(p) not in in_blocks}
    trains = [(p, p.requires_grad) for p in outside.values()]
    with in_evaluation(encoder), torch.enable_grad():
        for parameter, _ in trains:
            parameter.requires_grad_(True)
        try:
            output = encoder(batch_of(encoder), {})
        finally:
            for parameter, trained in trains:
                parameter.requires_grad_(trained)
    of_states, of_last = leaves_of(*output.hidden_states), leaves_of(output.last)
    return frozenset(n for n, p in outside.items() if id(p) in of_last - of_states)


def leaves_of(*tensors: Tensor) -> set[int]:
    """Ids of the leaves of the autograd graph that tensors depend on.

    >>> x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> leaves_of(2 * x) == {id(x)}
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


def _settings(model: nn.Module) -> set[tuple[str, str]]:
    """Names and plain values of the attributes of a model's modules."""
    return {
        (name or type(model).__name__, f"{key}={value}")
        for name, part in model.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, str | int | float) and not key.startswith("_")
    }
