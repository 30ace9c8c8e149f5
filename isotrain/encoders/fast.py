"""Shorter training steps of an encoder like BERT: the same estimates, fewer operations.

- Dropout at a third of torch's cost on a CPU: `LaneDropout`.
- No linear maps and norms on pads: `Packing`.
- The last block only for the tokens that are read: `read_tokens_only`.
- States after frozen blocks from disk: `FrozenPrefix`.

`make_fast` compares them with the exact step on a small batch. If they agree, a model in training
calls a `FastStep` in place of its encoder.

A = Q·B sequences, T tokens of the longest, N tokens in total, R read tokens, D hidden, h heads,
d dimensions of each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import depths
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.encoders.trial import batch_of, distance, in_evaluation, padded_batch, tolerance
from isotrain.runs.files import replacing
from isotrain.types import Batch, Edit, EncoderOutput, Example

TAKEN = "taken"
LANES = 1 << 16  # values of a 16-bit dropout lane
GROUP = 64  # sequences whose states are computed together
OF_NO_STATE = ("_name_or_path",)  # configuration entries that change no state
ATTENTION = "isotrain"  # name of `attention` in transformers


class FastStep:
    """The forward pass of an encoder in training, with the shortcuts that are on.

    Args:
        encoder: like BERT.
        reads: tokens of the last states that are read, see `tokens_read`; the others may be 0.
        packs: whether linear maps and norms skip pads.
    """

    def __init__(self, encoder: Any, reads: str = "all", packs: bool = False) -> None:
        self.encoder: TransformerEncoder = encoder
        self.reads, self.packs = reads, packs
        self.frozen_states: Callable[[Batch], Tensor] | None = None
        self.n_frozen = 0  # the block whose output they are

    def __call__(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """The output of the encoder, see `Encoder.forward`."""
        encoder, inputs = self.encoder, self.encoder.inputs(batch)
        hidden = None if self.frozen_states is None else self.frozen_states(batch)
        view: Edit | None = None
        if self.packs:
            mask_AT = inputs.pop("attention_mask").bool()
            packing = Packing.by_length(mask_AT) if mask_AT.is_cpu else Packing.of(mask_AT)
            inputs["position_ids"] = batch.attention_mask.cumsum(dim=1) - 1 + encoder.first_position
            inputs |= {
                name: packing.packed(x)[None] for name, x in inputs.items() if isinstance(x, Tensor)
            }
            inputs |= {"queries": packing, "keys": packing}
            after_block = {
                block: partial(packing.edited, edit) for block, edit in after_block.items()
            }
            view, hidden = packing.shown, None if hidden is None else packing.packed(hidden)[None]
        forwards: dict[nn.Module, Callable[..., Any]] = {}
        if (read_AT := tokens_read(self.reads, batch)) is not None:
            last_block = encoder.blocks[-1]
            forwards[last_block] = partial(read_tokens_only, last_block, read_AT)
        if hidden is not None:
            frozen_modules = (encoder.embeddings, *encoder.blocks[: self.n_frozen])
            forwards |= dict.fromkeys(frozen_modules, lambda *_, **__: hidden)
        with replaced(forwards):
            return encoder.record(inputs, after_block, view)


def make_fast(
    encoder: Encoder, reads: str, highest: int, hindrances: Mapping[str, str]
) -> tuple[FastStep | None, dict[str, str]]:
    """The fast step of an encoder, and by path: `taken`, or the reason why not.

    The paths are taken if a trial of all gives the states of the exact step; otherwise the step is
    None, and the encoder computes it, at most with another dropout.

    Args:
        encoder: its dropout modules and its function of attention may be replaced.
        reads: tokens of the last states that are read, see `tokens_read`.
        highest: last block whose states may be frozen.
        hindrances: why a path cannot be taken, or empty: `dropout`, `last_block`, `packing`,
            `frozen_prefix`.
    """
    paths = {path: hindrance or TAKEN for path, hindrance in hindrances.items()}
    bert_paths = [path for path in paths if path != "dropout" and paths[path] == TAKEN]
    if not (takes_attention(encoder) and is_bert_like(encoder.blocks[-1])):
        paths |= dict.fromkeys(bert_paths, "for encoders like BERT")
    if TAKEN not in paths.values():
        return None, paths
    batch = batch_of(encoder)
    reference = without_dropout(encoder, encoder, batch)
    if paths["dropout"] == TAKEN:
        draw_lanes(encoder)
    if not takes_attention(encoder):
        return None, paths
    implementation = encoder.model.config._attn_implementation
    use_attention(encoder.model)
    step = FastStep(encoder, packs=paths["packing"] == TAKEN)
    step.reads = "first" if paths["last_block"] == TAKEN else "all"
    read_AT = tokens_read(step.reads, batch)
    trial_depths = (0, 1, highest) if paths["frozen_prefix"] == TAKEN else (0,)

    def differs(depth: int) -> bool:
        """Whether the states above a frozen block, where they are read, are not the exact ones."""
        step.n_frozen = depth
        step.frozen_states = partial(states_after, encoder, depth) if depth else None
        states, last = without_dropout(encoder, step, batch)
        pairs = zip(states[depth:-1], reference.hidden_states[depth:-1], strict=True)
        gaps = [distance(*pair, batch.attention_mask) for pair in pairs]
        for pair in ((states[-1], reference.hidden_states[-1]), (last, reference.last)):
            gaps.append(distance(*pair, batch.attention_mask if read_AT is None else read_AT))
        return max(gaps) > tolerance(last)

    reason = ""
    try:
        if any(map(differs, trial_depths)):
            reason = "its states differ from those of the exact step in a trial"
    except Exception as error:  # an unsupported architecture may raise anything
        reason = f"it failed in a trial ({type(error).__name__}: {error})"
    if reason:
        encoder.model.set_attn_implementation(implementation)
        return None, paths | dict.fromkeys(bert_paths, reason)
    step.n_frozen, step.frozen_states = 0, None
    step.reads = reads if paths["last_block"] == TAKEN else "all"
    return step, paths


def without_dropout(
    encoder: Encoder, step: Callable[[Batch, Mapping[int, Edit]], EncoderOutput], batch: Batch
) -> EncoderOutput:
    """The output of a training step of an encoder, without gradient and with nothing dropped.

    Modules with a dropout module are in training mode, at a rate that drops nothing. Others are in
    evaluation mode, as they may call dropout by a rate of the configuration.
    """
    dropouts = [module for module in encoder.modules() if isinstance(module, nn.Dropout)]
    rates = [module.p for module in dropouts]
    with in_evaluation(encoder), torch.no_grad():
        for module in encoder.modules():
            modules = (module, *module.children())
            module.training = module is encoder or any(isinstance(m, nn.Dropout) for m in modules)
        for module in dropouts:
            module.p = 1e-9  # not 0, which could take another path
        try:
            return step(batch, {})
        finally:
            for module, rate in zip(dropouts, rates, strict=True):
                module.p = rate


@contextmanager
def replaced(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Temporarily replace the forward functions of modules."""
    for module, forward in forwards.items():
        module.forward = forward  # shadows the method of its class
    try:
        yield
    finally:
        for module in forwards:
            vars(module).pop("forward", None)


def tokens_read(reads: str, batch: Batch) -> Tensor | None:
    """Where a pooling reads the last hidden states, `[A, T]`; None = everywhere.

    `reads` is `Pooling.reads`.
    """
    position_T = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device)
    if reads == "first":
        return (position_T == 0).expand_as(batch.input_ids)
    if reads == "last":
        return position_T == (position_T * (batch.attention_mask != 0)).argmax(dim=1)[:, None]
    if reads == "spans" and batch.spans is not None:
        start_AS1, stop_AS1 = batch.spans[..., :1], batch.spans[..., 1:]
        return ((position_T >= start_AS1) & (position_T < stop_AS1)).any(dim=1)
    return None


class LaneDropout(nn.Dropout):
    """`nn.Dropout` that draws its masks from 16-bit lanes of 64-bit draws on a CPU.

    torch draws one Bernoulli number per element, in one thread. Here four elements share a draw of
    the same generator, and one is dropped if its lane is below `round(65536 p)`. So p is exact to
    1/131072, masks differ from torch's, and a resumed run continues the same stream.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The input with elements set to 0 at rate p and the others divided by 1 − p."""
        if not self.training or not input.is_cpu:
            return super().forward(input)
        return lane_dropout(input, self.p)


def lane_dropout(x: Tensor, p: float) -> Tensor:
    """A tensor of the same shape with elements set to 0 at rate p, the others divided by 1 − p.

    >>> x = lane_dropout(torch.ones(1000), 0.5)
    >>> sorted(set(x.tolist()))
    [0.0, 2.0]
    """
    n_dropped = round(p * LANES)
    if n_dropped in (0, LANES):
        return x if n_dropped == 0 else x * 0
    return _LaneDropout.apply(x, keep_mask(x.shape, n_dropped), LANES / (LANES - n_dropped))  # type: ignore[no-any-return, no-untyped-call]


def keep_mask(shape: torch.Size, dropped: int) -> Tensor:
    """A Boolean mask, false where a lane is among the lowest `dropped` of its 65536 values."""
    n = shape.numel()
    lanes = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return lanes.view(torch.int16)[:n].view(shape) >= dropped - LANES // 2


class _LaneDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.where(mask, x, 0.0).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (mask,) = ctx.saved_tensors
        return torch.where(mask, gradients[0], 0.0).mul_(ctx.scale), None, None


def draw_lanes(encoder: Encoder) -> None:
    """Switch the dropout modules of an encoder to lane dropout."""
    for module in list(encoder.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Dropout:
                setattr(module, name, LaneDropout(child.p).train(child.training))


class Packing(NamedTuple):
    """Where packed tokens `[N, ...]` are in a padded tensor `[A, T, ...]`.

    >>> packing = Packing.of(torch.tensor([[True, False], [True, True]]))
    >>> packing.padded(torch.tensor([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """

    mask_AT: Tensor  # true for a token, false for a pad
    flat_index_N: Tensor  # index of each token in the flattened [A·T]
    parts: tuple[Packing, ...] = ()  # groups of sequences of similar length, in this order

    @classmethod
    def of(cls, mask_AT: Tensor) -> Packing:
        """Pack the tokens of a mask in place."""
        return cls(mask_AT, mask_AT.flatten().nonzero().flatten())

    @classmethod
    def to_the_left(cls, mask_AT: Tensor) -> Packing:
        """Left-align the chosen tokens of each sequence; T is the largest number chosen.

        >>> Packing.to_the_left(torch.tensor([[False, True], [False, False]])).mask_AT.tolist()
        [[True], [False]]
        """
        n_A = mask_AT.sum(dim=1)
        position_T = torch.arange(int(n_A.max()), device=n_A.device)
        return cls.of(position_T < n_A[:, None])

    @classmethod
    def by_length(cls, mask_AT: Tensor, n_parts: int = 4) -> Packing:
        """Pack tokens, shortest sequence first, and split the batch into parts.

        >>> packing = Packing.by_length(torch.tensor([[True, True], [True, False]]), n_parts=2)
        >>> packing.flat_index_N.tolist(), [part.mask_AT.tolist() for part in packing.parts]
        ([2, 0, 1], [[[True]], [[True, True]]])
        """
        order_A = mask_AT.sum(dim=1).argsort(stable=True)
        index_AT = torch.arange(mask_AT.numel(), device=mask_AT.device).view_as(mask_AT)
        parts = tuple(cls.to_the_left(mask_AT[chunk]) for chunk in order_A.chunk(n_parts))
        return cls(mask_AT, index_AT[order_A][mask_AT[order_A]], parts)

    def packed(self, x: Tensor) -> Tensor:
        """Pack: the tokens `[N, ...]` of `[A, T, ...]`."""
        return x.flatten(0, 1).index_select(0, self.flat_index_N)

    def padded(self, x: Tensor) -> Tensor:
        """Unpack: `[A, T, ...]` with the tokens `[N, ...]`, and 0 elsewhere."""
        flat = x.new_zeros(self.mask_AT.numel(), *x.shape[1:])
        return flat.index_copy(0, self.flat_index_N, x).unflatten(0, self.mask_AT.shape)  # type: ignore[no-any-return, no-untyped-call]

    def shown(self, x: Tensor) -> Tensor:
        """The padded states of packed ones `[1, N, D]`."""
        return self.padded(x[0])

    def edited(self, edit: Edit, x_ATD: Tensor) -> Tensor:
        """The packed states `[1, N, D]` after an edit of padded ones."""
        return self.packed(edit(x_ATD))[None]


def takes_attention(encoder: Encoder) -> bool:
    """Whether an encoder is a transformers model that can call `attention`."""
    if encoder.model is None or encoder.is_causal:
        return False
    return encoder.model.config._attn_implementation in ("sdpa", ATTENTION)


def use_attention(model: Any) -> None:
    """Make a transformers model use `attention`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation(ATTENTION)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    queries: Packing | None = None,
    keys: Packing | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention outputs `[A, T, h, d]` for `query` `[A, h, T, d]`, without weights.

    `queries` and `keys` define how tokens are packed into one sequence, `[1, h, N, d]`; the mask is
    then that of `keys`, else `attention_mask` (Boolean, true for tokens that may be attended to).
    If both are the same packing with parts, attention pads only within each part.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    attend = partial(_attend, module, dropout=dropout, scale=scale)
    if keys is not None and keys.parts and queries is keys:
        sizes = [len(part.flat_index_N) for part in keys.parts]
        splits = (torch.split(x, sizes, dim=2) for x in (query, key, value))
        outputs = []
        for part, *qkv in zip(keys.parts, *splits, strict=True):
            q, k, v = (_to_heads(part, x) for x in qkv)
            outputs.append(part.packed(attend(q, k, v, part.mask_AT[:, None, None])))
        return torch.cat(outputs)[None], None
    if keys is not None:
        attention_mask = keys.mask_AT[:, None, None]
        key, value = (_to_heads(keys, x) for x in (key, value))
    if queries is not None:
        query = _to_heads(queries, query)
        if attention_mask is not None and keys is None:
            attention_mask = attention_mask[:, :, :1]  # the same for each query
    output = attend(query, key, value, attention_mask)
    return (output if queries is None else queries.packed(output)[None]), None


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    scale: float,
) -> Tensor:
    """`[A, T, h, d]` of padded queries, keys and values."""
    draws_lanes = isinstance(getattr(module, "dropout", None), LaneDropout)
    if dropout > 0 and query.is_cpu and draws_lanes:
        scores = (query * scale) @ key.transpose(2, 3)
        if mask is not None:
            scores = scores.masked_fill_(~mask, float("-inf"))
        output = lane_dropout(scores.softmax(-1), dropout) @ value
    else:
        output = scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)
    return output.transpose(1, 2).contiguous()


def _to_heads(packing: Packing, x: Tensor) -> Tensor:
    """`[1, h, N, d]` to `[A, h, T, d]`."""
    return packing.padded(x[0].transpose(0, 1)).transpose(1, 2)


def is_bert_like(block: nn.Module) -> bool:
    """Whether a block is bidirectional and has BERT's submodules (as RoBERTa and ELECTRA)."""
    names = ("attention.self.query", "attention.self.key", "attention.self.value")
    module_names = {name for name, _ in block.named_modules()}
    required_names = {*names, "attention.output.dense", "intermediate.dense", "output.dense"}
    return required_names <= module_names and not getattr(block, "is_decoder", True)


def read_tokens_only(
    block: Any,
    read_AT: Tensor,
    hidden: Tensor,
    attention_mask: Tensor | None,
    *_: Any,
    queries: Packing | None = None,
    keys: Packing | None = None,
    **__: Any,
) -> Tensor:
    """The output of a BERT-like block where `read_AT` is true, and 0 elsewhere.

    Input and output are `[A, T, D]`, or `[1, N, D]` packed as in `keys`.
    """
    self_attention = block.attention.self
    index = torch.arange(hidden[..., 0].numel(), device=hidden.device)
    index_AT = index.view_as(read_AT) if keys is None else keys.padded(index)
    index_R = index_AT[read_AT]
    read_1RD = hidden.flatten(0, 1)[index_R][None]

    def heads(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self_attention.num_attention_heads, -1).transpose(1, 2)

    context, _weights = attention(
        self_attention,
        heads(self_attention.query(read_1RD)),
        heads(self_attention.key(hidden)),
        heads(self_attention.value(hidden)),
        attention_mask,
        dropout=self_attention.dropout.p if self_attention.training else 0.0,
        scaling=self_attention.scaling,
        queries=Packing.to_the_left(read_AT),
        keys=keys,
    )
    attended_1RD = block.attention.output(context.flatten(2), read_1RD)
    output_1RD = block.output(block.intermediate(attended_1RD), attended_1RD)
    flat = hidden.new_zeros(hidden.flatten(0, 1).shape).to(output_1RD.dtype)
    return flat.index_copy(0, index_R, output_1RD[0]).view_as(hidden)


@torch.no_grad()
def states_after(encoder: Encoder, depth: int, batch: Batch) -> Tensor:
    """States `[A, T, D]` after block `depth`, in each module's current mode."""
    forwards = dict.fromkeys(encoder.blocks[depth:], lambda hidden, *_, **__: hidden)
    with replaced(forwards):
        return encoder(batch, {}).last  # type: ignore[no-any-return]


class FrozenPrefix:
    """States after block `depth` for the sequences of a training set, as float32 on disk.

    Sequences are computed in groups of similar length that depend only on the set, so that a state
    is bit-identical in any run and order of requests. A group is one file, `[N, D]`, written
    atomically; one that is missing is computed again. Processes and runs may share them.

    Args:
        folder: of the files, one folder for each `prefix_key`.
        encoder: computes the states.
        depth: the block.
        examples: the training set.
        precision: of the computation, as the trainer names it.
    """

    def __init__(
        self,
        folder: Path,
        encoder: Encoder,
        depth: int,
        examples: Sequence[Example],
        precision: str,
    ) -> None:
        self.encoder, self.depth = encoder, depth
        self.sequences = [
            (ids, types)
            for example in examples
            for ids, types in zip(example.input_ids, example.token_type_ids, strict=True)
        ]
        # From the index of an example to that of its first sequence.
        self.first_of = {e.index: i * len(e.input_ids) for i, e in enumerate(examples)}
        self.lengths = np.array([len(ids) for ids, _ in self.sequences])
        order = np.argsort(-self.lengths, kind="stable")
        self.groups = [order[i : i + GROUP] for i in range(0, len(order), GROUP)]
        self.group_of, self.start_of = np.empty((2, len(self.lengths)), dtype=int)
        for number, group in enumerate(self.groups):
            self.group_of[group] = number
            self.start_of[group] = self.lengths[group].cumsum() - self.lengths[group]
        self.folder = folder / prefix_key(encoder, depth, examples, precision)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.states: dict[int, np.ndarray] = {}  # by group, memory-mapped from its file

    def __call__(self, batch: Batch) -> Tensor:
        """The states `[A, T, D]` of a batch, 0 at pads."""
        firsts = [self.first_of[index] for index in batch.index.tolist()]
        sequence_ids = [first + q for q in range(batch.n_sequences) for first in firsts]
        states = torch.zeros(*batch.input_ids.shape, self.encoder.width)
        for row, sequence_id in enumerate(sequence_ids):
            start, length = self.start_of[sequence_id], self.lengths[sequence_id]
            token_states = self._states_of(int(self.group_of[sequence_id]))[start : start + length]
            states[row, :length] = torch.from_numpy(np.asarray(token_states))
        return states.to(batch.input_ids.device)

    def _states_of(self, group: int) -> np.ndarray:
        """The states `[N, D]` of a group, from its file or computed into it."""
        if group not in self.states:
            file = self.folder / f"{group}.npy"
            if not file.is_file():
                with replacing(file) as handle:
                    np.save(handle, self._computed(self.groups[group]))
            self.states[group] = np.load(file, mmap_mode="c")
        return self.states[group]

    def _computed(self, members: np.ndarray) -> np.ndarray:
        ids, types = zip(*(self.sequences[member] for member in members), strict=True)
        batch = padded_batch(ids, self.encoder.tokenizer.pad_token_id, types)
        batch = batch.to(next(self.encoder.parameters()).device)
        states_ATD = states_after(self.encoder, self.depth, batch)
        states_ND = states_ATD[batch.attention_mask.bool()]
        return states_ND.float().cpu().numpy()


def prefix_key(encoder: Encoder, depth: int, examples: Sequence[Example], precision: str) -> str:
    """Cache key of the states after block `depth`: model, configuration, tokens and precision."""
    config = {k: v for k, v in encoder.model.config.to_dict().items() if k not in OF_NO_STATE}
    description = f"{type(encoder.model)} {json.dumps(config, sort_keys=True, default=str)}"
    digest = hashlib.sha256(f"{depth} {precision} {GROUP} {description}".encode())
    depth_of = depths(encoder)
    parameters = [(n, x) for n, x in encoder.named_parameters() if depth_of[n] <= depth]
    for name, tensor in [*parameters, *encoder.named_buffers()]:
        digest.update(name.encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    for example in examples:
        digest.update(repr((example.input_ids, example.token_type_ids)).encode())
    return digest.hexdigest()[:32]
