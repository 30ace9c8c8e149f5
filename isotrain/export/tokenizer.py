"""The tokenizer of a run as it is written: what it gives is what the run gave its encoder."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from isotrain.export.rebuilt import Rebuilt


def write_tokenizer(folder: Path, rebuilt: Rebuilt) -> None:
    """Write a tokenizer that cuts a text where the run cut it, and pads at the right.

    It gives segments (`token_type_ids`) where the encoder of the run was given them, and nowhere
    else: a model with one table for words and segments would take them for words.
    """
    tokenizer = deepcopy(rebuilt.tokenizer)
    segments = ["token_type_ids"] if rebuilt.takes_segments else []
    kept = {
        "model_max_length": rebuilt.max_length,
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        "padding_side": "right",
        "truncation_side": tokenizer.truncation_side,
    }
    for name, value in kept.items():
        setattr(tokenizer, name, value)
    tokenizer.init_kwargs |= kept  # what `save_pretrained` writes
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)
