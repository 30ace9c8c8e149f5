"""Encoder wrapper of a BERT-like or GPT-2-like model that records its hidden states.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from isotrain.encoders.attention import Packing
from isotrain.encoders.base import Encoder
from isotrain.encoders.last_block import read_tokens_only
from isotrain.encoders.trial import (
    TOLERANCE,
    blocks_of,
    check_states,
    distance,
    in_evaluation,
    trial_sequences,
)
from isotrain.types import Batch, Edit, EncoderOutput

# GPT and GPT-2 name their word and position tables differently.
EMBEDDINGS = ("embeddings", "wte", "wpe", "embed_tokens", "tokens_embed", "positions_embed")
POSITIONS = ("position_embeddings", "wpe", "positions_embed")


class TransformerEncoder(Encoder):
    """All L+1 hidden states of a transformers model, recorded at its blocks.

    State 0 is the input of block 1 (the embedding output), state l the output of block l. An edit
    after block k changes the input of the next block, not the recorded state. The hooks are its
    own: whether those of transformers see an edit depends on which was registered first. GPT-2's
    final norm is part of the encoder's output, but not of state L (in transformers it is). The
    model is put in train mode (`from_pretrained` returns it in evaluation mode, with dropout off),
    must be float32, and loses its pooler, which nothing here uses. Gradient checkpointing is
    switched off: a recomputed block would lack the edit after it.

    A trial on a small padded batch compares the recorded states with those of transformers, and
    those of a padded text with those of the text alone.

    Args:
        model: a transformers base model.
        tokenizer: its fast tokenizer.
        source_id: origin of the weights, for the record of the run.

    Raises:
        ValueError: no blocks or embeddings are found, the weights are not float32, or the trial
            shows other states.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, source_id: str) -> None:
        dtypes = {p.dtype for p in model.parameters()}
        if dtypes != {torch.float32}:
            raise ValueError(
                f"training needs float32 weights, got {sorted(map(str, dtypes))}; load with "
                "dtype=torch.float32"
            )
        blocks = tuple(blocks_of(model))
        _embeddings(model)  # raises if there are none
        super().__init__(int(model.config.hidden_size), tokenizer, source_id)  # type: ignore[union-attr, arg-type]
        model.pooler = None  # type: ignore[assignment]
        for part in model.modules():
            if getattr(part, "gradient_checkpointing", False):
                part.gradient_checkpointing = False  # type: ignore[assignment]
        self.model = model.train()
        self.blocks = blocks  # a tuple: not registered twice, so the state dict has each once
        tables = {
            name.rpartition(".")[2]: part
            for name, part in model.named_modules()
            if isinstance(part, nn.Embedding)
        }
        positions = next((tables[name] for name in POSITIONS if name in tables), None)
        self._first_position = _first_position(positions)
        if positions is not None:
            self.max_positions = positions.num_embeddings - self._first_position
        accepted = inspect.signature(model.forward).parameters
        # Without a segment table (GPT-2), a segment would be looked up as a word; a table with a
        # single entry (RoBERTa) cannot distinguish segments.
        segments = tables.get("token_type_embeddings")
        self._takes_segments = (
            "token_type_ids" in accepted and segments is not None and segments.num_embeddings > 1
        )
        self._options = {"use_cache": False} if "use_cache" in accepted else {}
        self._packing: Packing | None = None  # of the batch, if it is packed
        self._states: list[Tensor] | None = None
        self._n_tokens = 0  # T of the batch
        self._edits: Mapping[int, Edit] = {}
        self.blocks[0].register_forward_pre_hook(self._record_embedding, with_kwargs=True)
        for number, block in enumerate(self.blocks, start=1):
            block.register_forward_hook(partial(self._record_block, number))
        self._try()

    @property
    def embeddings(self) -> nn.Module:  # type: ignore[override]
        """The module that maps token ids to state 0."""
        return _embeddings(self.model)

    def forward(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """Hidden states of a batch, as specified in `Encoder.forward`.

        Raises:
            ValueError: sequences longer than the model's position table.
        """
        length = batch.input_ids.shape[1]
        if self.max_positions is not None and length > self.max_positions:
            raise ValueError(
                f"a sequence may have at most {self.max_positions} tokens for this encoder, got "
                f"{length}; lower task.max_length"
            )
        given: dict[str, Any] = {
            "input_ids": batch.input_ids,
            "attention_mask": batch.attention_mask,
        }
        if self._takes_segments:
            given["token_type_ids"] = batch.token_type_ids
        prefix = self.frozen_prefix if self.training else None
        prefix_ATD = None if prefix is None else prefix(batch)
        self._states, self._edits, self._n_tokens = [], after_block, length
        if self.packs_tokens and self.training:
            mask_AT = given.pop("attention_mask").bool()
            packing = Packing.by_length if mask_AT.is_cpu else Packing.of
            self._packing = packing(mask_AT)
            given["position_ids"] = batch.attention_mask.cumsum(dim=1) - 1 + self._first_position
            given = {name: self._packing.packed(x)[None] for name, x in given.items()}
            given |= {"queries": self._packing, "keys": self._packing}
        forwards: dict[nn.Module, Callable[..., Any]] = {}
        if batch.read_mask is not None:
            last = self.blocks[-1]
            forwards[last] = partial(read_tokens_only, last, batch.read_mask)
        if prefix_ATD is not None:
            hidden = prefix_ATD if self._packing is None else self._packing.packed(prefix_ATD)[None]
            frozen = (self.embeddings, *self.blocks[: self.frozen_prefix.level])
            forwards |= dict.fromkeys(frozen, lambda *_, **__: hidden)
        try:
            with replaced(forwards):
                output = self.model(**given, **self._options)
            if len(self._states) != self.n_blocks + 1:
                raise RuntimeError(
                    f"{len(self._states)} hidden states were seen, not {self.n_blocks + 1}; each "
                    "block must run once in a forward pass, outside of any compiled module"
                )
            return EncoderOutput(tuple(self._states), self._padded(output.last_hidden_state))
        finally:
            self._states, self._edits, self._packing = None, {}, None

    @torch.no_grad()
    def states_after(
        self, level: int, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> Tensor:
        """States `[A, T, D]` of sequences after block `level`, in each module's current mode."""

        def padded(lists: Sequence[Sequence[int]], fill: int) -> Tensor:
            rows = [torch.tensor(row) for row in lists]
            return pad_sequence(rows, batch_first=True, padding_value=fill).to(self.model.device)

        given = {"input_ids": padded(ids, self.tokenizer.pad_token_id)}
        given["attention_mask"] = padded([[1] * len(row) for row in ids], 0)
        if self._takes_segments:
            given["token_type_ids"] = padded(types, 0)
        above = dict.fromkeys(self.blocks[level:], lambda hidden, *_, **__: hidden)
        with replaced(above):
            return self.model(**given, **self._options).last_hidden_state  # type: ignore[no-any-return]

    @torch.no_grad()
    def _try(self) -> None:
        """Check the recorded states on a padded batch; find out whether the model is causal."""
        n_ids = self.model.get_input_embeddings().num_embeddings
        sequences = trial_sequences(self.tokenizer, n_ids, self.max_positions)
        pad = getattr(self.tokenizer, "pad_token_id", None) or 0

        def given(ids_AT: Tensor, mask_AT: Tensor) -> dict[str, Any]:
            segments = {"token_type_ids": torch.zeros_like(ids_AT)} if self._takes_segments else {}
            return {"input_ids": ids_AT, "attention_mask": mask_AT, **segments, **self._options}

        def run(ids_AT: Tensor, mask_AT: Tensor) -> Sequence[Tensor]:
            self._states, self._n_tokens = [], ids_AT.shape[1]
            try:
                self.model(**given(ids_AT, mask_AT))
                return self._states
            finally:
                self._states = None

        def own(ids_AT: Tensor, mask_AT: Tensor) -> Sequence[Tensor]:
            output = self.model(**given(ids_AT, mask_AT), output_hidden_states=True)
            return output.hidden_states or ()

        with in_evaluation(self.model):
            check_states(self.model, run, own, sequences, pad)
            # No configuration entry says for every architecture whether it is causal.
            ids_2T = torch.tensor([sequences[0], sequences[0]])
            ids_2T[1, -1] = (ids_2T[1, -1] + 1) % n_ids
            output = self.model(**given(ids_2T, torch.ones_like(ids_2T)))
            first, second = output.last_hidden_state[:, :1]
            self.is_causal = distance(first, second) <= TOLERANCE / 100

    def _record_embedding(self, block: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if self._states is not None:
            self._states.append(self._padded(args[0] if args else kwargs["hidden_states"]))

    def _record_block(self, number: int, block: nn.Module, args: Any, output: Any) -> Any:
        if self._states is None:
            return None
        several = isinstance(output, tuple | list)  # GPT returns a list, recent BERT a tensor
        whole = output[0] if several else output
        hidden_ATD = self._padded(whole)
        self._states.append(hidden_ATD)
        if number not in self._edits:
            return None
        edited = self._edits[number](hidden_ATD)
        if self._packing is not None:
            edited = self._packing.packed(edited)[None]
        elif whole.shape[1] > self._n_tokens:
            edited = torch.cat([edited, whole[:, self._n_tokens :]], dim=1)
        return type(output)([edited, *output[1:]]) if several else edited

    def _padded(self, hidden: Tensor) -> Tensor:
        """Unpack to `[A, T, D]`, if packed; Longformer's own pads are cut off."""
        if self._packing is not None:
            return self._packing.padded(hidden[0])
        return hidden[:, : self._n_tokens] if hidden.shape[1] > self._n_tokens else hidden


def cut_after(model: Any, n_blocks: int) -> None:
    """Remove the blocks above block `n_blocks` (counted from 1) of a transformers model, in place.

    The other weights are unchanged. A final norm (GPT-2) stays: it then normalises the output of
    block `n_blocks`.

    Raises:
        ValueError: the model has fewer blocks.
    """
    blocks, config = blocks_of(model), model.config
    if n_blocks > len(blocks):
        raise ValueError(
            f"encoder.n_blocks must be at most {len(blocks)} for this encoder, got {n_blocks}; "
            "null keeps all blocks"
        )
    del blocks[n_blocks:]
    config.num_hidden_layers = n_blocks
    if types := getattr(config, "layer_types", None):  # one per block: ModernBERT
        config.layer_types = types[:n_blocks]


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


def _first_position(table: nn.Embedding | None) -> int:
    """Position id of the first token: RoBERTa starts after its pad id."""
    return 0 if table is None or table.padding_idx is None else table.padding_idx + 1


def _embeddings(model: nn.Module) -> nn.Module:
    tables = [part for name, part in model.named_children() if name in EMBEDDINGS]
    if not tables:
        raise ValueError(
            f"{type(model).__name__} has none of {', '.join(EMBEDDINGS)}; isotrain needs to see "
            "the embeddings of an encoder: use a model like BERT or GPT-2"
        )
    return tables[0] if len(tables) == 1 else nn.ModuleList(tables)
