"""Encoders from the Hugging Face hub or a local folder."""

from __future__ import annotations

import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from isotrain.encoders.on_disk import WAYS_OUT
from isotrain.encoders.tokenizers import complete
from isotrain.encoders.transformer import TransformerEncoder


class EncoderUnavailableError(OSError):
    """The weights are neither on disk nor reachable."""


def load_encoder(name: str, revision: str | None = None) -> TransformerEncoder:
    """The pre-trained encoder `name`, a hub id or a folder, in float32 and train mode.

    `revision` pins a commit of the hub; a folder has none. Never runs code from the hub.

    Raises:
        EncoderUnavailableError: neither on disk nor reachable; the message says what to do.
        ValueError: the tokenizer has no vocabulary, or can neither pad nor end a sentence.
    """
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of reading weights; downloads keep theirs
    try:
        model = AutoModel.from_pretrained(name, revision=revision, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, use_fast=True)
    except OSError as error:
        raise EncoderUnavailableError(
            f"encoder {name!r} is neither on disk nor reachable on the hub; {WAYS_OUT}. What went "
            f"wrong: {error}"
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(
            f"{name!r} has weights but no vocabulary: every word would be [UNK]; save the "
            "tokenizer beside the model (tokenizer.save_pretrained)"
        )
    complete(tokenizer)
    commit = revision or getattr(model.config, "_commit_hash", None)  # of the newest
    return TransformerEncoder(model, tokenizer, f"{name}@{commit}" if commit else name)
