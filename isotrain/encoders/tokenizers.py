"""What the tokenizers of decoders lack for pairs in batches: a pad token, ends of sentences."""

from __future__ import annotations

from typing import Any

from tokenizers.processors import TemplateProcessing


def complete(tokenizer: Any) -> None:
    """Give a fast tokenizer what it lacks, in place; that of a BERT-like model stays as it is.

    Without a pad token the end-of-text token pads: the attention mask hides it. A tokenizer that
    adds nothing to a pair would glue its sentences together, so each gets an end, marked as
    special: `a eos` and `a eos b eos`. GPT has no end-of-text token: its unknown token serves.

    Raises:
        ValueError: something is lacking, and there is neither an end-of-text nor an unknown token
            to make it of.
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
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=["$A:0", f"{eos}:0"],
            pair=["$A:0", f"{eos}:0", "$B:1", f"{eos}:1"],
            special_tokens=[(eos, tokenizer.convert_tokens_to_ids(eos))],
        )
