"""Sentences as token ids: pairs in one sequence (`cross`), or each in its own (`bi`)."""

from collections.abc import Sequence
from typing import Any, Literal

from isotrain.types import Example

Form = Literal["cross", "bi"]
Span = tuple[int, int]


def encode_pairs(
    pairs: Sequence[tuple[str, ...]],
    labels: Sequence[float],
    tokenizer: Any,
    form: Form,
    max_length: int,
    spans: Sequence[tuple[Span, Span]] | None = None,
) -> list[Example]:
    """One `Example` per pair, truncated to `max_length` tokens (the longer sentence first).

    In the bi form there may be any number of sentences, the same in each of `pairs`. `spans` are
    half-open character spans, one in each sentence; they become token spans: all tokens that
    overlap the characters.

    Raises:
        ValueError: a span whose tokens were cut off; the row and a fix are named.
    """
    if not pairs:
        return []
    columns = [list(column) for column in zip(*pairs, strict=True)]
    is_cross = form == "cross"
    texts = [columns] if is_cross else [[column] for column in columns]
    encoded = [
        tokenizer(
            *text,
            truncation=True,
            max_length=max_length,
            padding=False,
            return_token_type_ids=True,
            return_special_tokens_mask=True,
            return_offsets_mapping=spans is not None,
        )
        for text in texts
    ]
    examples = []
    for i, label in enumerate(labels):
        token_spans = None
        if spans is not None:
            found: list[Span] = []
            for sentence, span in enumerate(spans[i]):
                whole, text = (encoded[0], sentence) if is_cross else (encoded[sentence], 0)
                tokens = _tokens_of(whole, i, text, span)
                if not tokens:
                    raise ValueError(
                        f"row {i}: the target in sentence {sentence + 1} "
                        f"({pairs[i][sentence]!r}) is not among the max_length={max_length} "
                        "tokens that are kept; raise task.max_length"
                    )
                found.append((tokens[0], tokens[-1] + 1))
            token_spans = [found] if is_cross else [[span] for span in found]
        examples.append(
            Example(
                input_ids=[e["input_ids"][i] for e in encoded],
                token_type_ids=[e["token_type_ids"][i] for e in encoded],
                special_mask=[e["special_tokens_mask"][i] for e in encoded],
                spans=token_spans,
                label=label,
                index=i,
            )
        )
    return examples


def _tokens_of(encoded: Any, i: int, text: int, span: Span) -> list[int]:
    """Tokens of row i that overlap a character span of its text number `text`."""
    offsets = zip(encoded["offset_mapping"][i], encoded.sequence_ids(i), strict=True)
    return [
        token
        for token, ((first, stop), owner) in enumerate(offsets)
        if owner == text and first < span[1] and stop > span[0]
    ]
