"""Encoder wrapper of a BERT-like or GPT-2-like model that records its hidden states.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.encoders.base import Encoder
from isotrain.encoders.trial import (
    TOLERANCE,
    batch_of,
    blocks_of,
    check_states,
    distance,
    in_evaluation,
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
        for module in model.modules():
            if getattr(module, "gradient_checkpointing", False):
                module.gradient_checkpointing = False  # type: ignore[assignment]
        self.model = model.train()
        self.blocks = blocks  # a tuple: not registered twice, so the state dict has each once
        tables = {
            name.rpartition(".")[2]: module
            for name, module in model.named_modules()
            if isinstance(module, nn.Embedding)
        }
        position_table = next((tables[name] for name in POSITIONS if name in tables), None)
        pad = None if position_table is None else position_table.padding_idx
        self.first_position = 0 if pad is None else pad + 1  # position id: RoBERTa's follow its pad
        if position_table is not None:
            self.max_positions = position_table.num_embeddings - self.first_position
        parameters = inspect.signature(model.forward).parameters
        # Without a segment table (GPT-2), a segment would be looked up as a word; a table with a
        # single entry (RoBERTa) cannot distinguish segments.
        segments = tables.get("token_type_embeddings")
        self._takes_segments = (
            "token_type_ids" in parameters and segments is not None and segments.num_embeddings > 1
        )
        self._options = {"use_cache": False} if "use_cache" in parameters else {}
        self._pass: _Pass | None = None  # the running forward pass
        self.blocks[0].register_forward_pre_hook(self._record_embedding, with_kwargs=True)
        for number, block in enumerate(self.blocks, start=1):
            block.register_forward_hook(partial(self._record_block, number))
        self._try()

    @property
    def embeddings(self) -> nn.Module:  # type: ignore[override]
        """The module that maps token ids to state 0."""
        return _embeddings(self.model)

    def forward(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """Hidden states of a batch, as specified in `Encoder.forward`."""
        return self.record(self.inputs(batch), after_block)

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Arguments of the model for a batch."""
        arguments = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        if self._takes_segments:
            arguments["token_type_ids"] = batch.token_type_ids
        return arguments | self._options

    def record(
        self, inputs: Mapping[str, Any], after_block: Mapping[int, Edit], view: Edit | None = None
    ) -> EncoderOutput:
        """Run the model, and record the states at its blocks.

        Args:
            inputs: arguments of the model.
            after_block: edits, see `Encoder.forward`.
            view: what is recorded and edited of a hidden state; None = all of it.

        Raises:
            ValueError: a block did not run once, so that states are missing or not edited.
        """
        self._pass = trace = _Pass(inputs["input_ids"].shape[1], after_block, view)
        try:
            last = trace.view_of(self.model(**inputs).last_hidden_state)
        finally:
            self._pass = None
        if len(trace.states) != self.n_blocks + 1:
            raise ValueError(
                f"{len(trace.states)} hidden states of {type(self.model).__name__} are seen, not "
                f"{self.n_blocks + 1}; each block must run once in a forward pass, outside of any "
                "compiled module"
            )
        return EncoderOutput(tuple(trace.states), last)

    @torch.no_grad()
    def _try(self) -> None:
        """Check the recorded states on a padded batch; find out whether the model is causal."""

        def run(batch: Batch) -> Sequence[Tensor]:
            return self(batch, {}).hidden_states  # type: ignore[no-any-return]

        def reference(batch: Batch) -> Sequence[Tensor]:
            return self.model(**self.inputs(batch), output_hidden_states=True).hidden_states  # type: ignore[no-any-return]

        batch = batch_of(self)
        with in_evaluation(self.model):
            check_states(self.model, run, reference, batch)
            # No configuration entry says for every architecture whether it is causal.
            first_state = self(batch, {}).last[0, :1]
            batch.input_ids[0, -1] = (batch.input_ids[0, -1] + 1) % len(self.tokenizer)
            self.is_causal = distance(first_state, self(batch, {}).last[0, :1]) <= TOLERANCE / 100

    def _record_embedding(self, block: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if self._pass is not None:
            hidden = args[0] if args else kwargs["hidden_states"]
            self._pass.states.append(self._pass.view_of(hidden))

    def _record_block(self, number: int, block: nn.Module, args: Any, output: Any) -> Any:
        trace = self._pass
        if trace is None:
            return None
        is_sequence = isinstance(output, tuple | list)  # GPT returns a list, recent BERT a tensor
        hidden = output[0] if is_sequence else output
        trace.states.append(trace.view_of(hidden))
        if number not in trace.edits:
            return None
        edited = trace.edits[number](trace.states[-1])
        if hidden.shape[1] > trace.n_tokens:
            edited = torch.cat([edited, hidden[:, trace.n_tokens :]], dim=1)
        return type(output)([edited, *output[1:]]) if is_sequence else edited


@dataclass
class _Pass:
    """One forward pass: what the hooks of the blocks need, and the states that they record."""

    n_tokens: int
    edits: Mapping[int, Edit]
    view: Edit | None
    states: list[Tensor] = field(default_factory=list)

    def view_of(self, hidden: Tensor) -> Tensor:
        """A hidden state `[A, T, D]`; Longformer's own pads are cut off."""
        if hidden.shape[1] > self.n_tokens:
            hidden = hidden[:, : self.n_tokens]
        return hidden if self.view is None else self.view(hidden)


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
    if layer_types := getattr(config, "layer_types", None):  # one per block: ModernBERT
        config.layer_types = layer_types[:n_blocks]


def _embeddings(model: nn.Module) -> nn.Module:
    tables = [module for name, module in model.named_children() if name in EMBEDDINGS]
    if not tables:
        raise ValueError(
            f"{type(model).__name__} has none of {', '.join(EMBEDDINGS)}; isotrain needs to see "
            "the embeddings of an encoder: use a model like BERT or GPT-2"
        )
    return tables[0] if len(tables) == 1 else nn.ModuleList(tables)
