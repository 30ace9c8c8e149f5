"""Sentences as token ids: pairs in one sequence (`cross`), or each in its own (`bi`)."""

import sys
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from isotrain.types import Batch, Example

Form = Literal["cross", "bi"]
Span = tuple[int, int]


def encode_pairs(
    pairs: Sequence[tuple[str, ...]],
    labels: Sequence[float],
    tokenizer: Any,
    form: Form,
    max_length: int,
    spans: Sequence[tuple[Span, Span]] | None = None,
    limit: str = "task.max_length",
) -> list[Example]:
    """One `Example` per pair, truncated to `max_length` tokens (the longer sentence first).

    In the bi form there may be any number of sentences, the same in each of `pairs`. `spans` are
    half-open character spans, one in each sentence; they become token spans: all tokens that
    overlap the characters. `limit` is the key of `max_length`, for messages. `lost` of an
    example lists its losses: truncated text, part of a target word, or no known token.

    Raises:
        ValueError: a span whose tokens were cut off; the row and a fix are named.
    """
    if not pairs:
        return []
    columns = [list(column) for column in zip(*pairs, strict=True)]
    is_cross = form == "cross"
    texts = [columns] if is_cross else [[column] for column in columns]

    def tokenised(text: list[list[str]], most: int) -> Any:
        return tokenizer(
            *text,
            truncation=True,
            max_length=most,
            padding=False,
            return_token_type_ids=True,
            return_special_tokens_mask=True,
            return_offsets_mapping=spans is not None,
        )

    encodings = [tokenised(text, max_length) for text in texts]
    uncut: list[dict[int, tuple[Any, int]]] = []  # of each sequence: whole texts, by the row cut
    for text, encoding in zip(texts, encodings, strict=True):
        cut_rows = [i for i, ids in enumerate(encoding["input_ids"]) if len(ids) >= max_length]
        whole: Any = None
        if encoding.is_fast:
            cut_rows = [i for i in cut_rows if encoding.encodings[i].overflowing]
        if cut_rows and (spans is not None or not encoding.is_fast):
            whole = tokenised([[column[i] for i in cut_rows] for column in text], sys.maxsize)
        rows = {i: (whole, k) for k, i in enumerate(cut_rows)}
        if not encoding.is_fast:  # it does not say what it cut
            rows = {i: at for i, at in rows.items() if len(whole["input_ids"][at[1]]) > max_length}
        uncut.append(rows)
    at_limit = f"at {limit}={max_length}"
    examples = []
    for i, label in enumerate(labels):
        lost = [f"cut {at_limit}"] if any(i in rows for rows in uncut) else []
        token_spans = None
        if spans is not None:
            target_spans: list[Span] = []
            is_target_cut = False
            for sentence, span in enumerate(spans[i]):
                sequence, text_number = (0, sentence) if is_cross else (sentence, 0)
                tokens = _tokens_of(encodings[sequence], i, text_number, span)
                if not tokens:
                    raise ValueError(
                        f"row {i}: the target in sentence {sentence + 1} "
                        f"({pairs[i][sentence]!r}) is not among the max_length={max_length} "
                        f"tokens that are kept; raise {limit}"
                    )
                target_spans.append((tokens[0], tokens[-1] + 1))
                if i in uncut[sequence]:
                    all_tokens = _tokens_of(*uncut[sequence][i], text_number, span)
                    is_target_cut |= len(tokens) < len(all_tokens)
            token_spans = [target_spans] if is_cross else [[span] for span in target_spans]
            lost += [f"with part of a target word cut {at_limit}"] if is_target_cut else []
        ids = [e["input_ids"][i] for e in encodings]
        special = [e["special_tokens_mask"][i] for e in encodings]
        row_texts = ["".join(pairs[i])] if is_cross else pairs[i]
        is_known = [
            _has_known_token(*x, tokenizer.unk_token_id) for x in zip(ids, special, strict=True)
        ]
        if any(text.strip() and not known for text, known in zip(row_texts, is_known, strict=True)):
            lost.append("without a known token in a text")
        of_sequences = zip(ids, token_spans or (), strict=False)
        targets = [tokens[start:stop] for tokens, cuts in of_sequences for start, stop in cuts]
        if any({*target} == {tokenizer.unk_token_id} for target in targets):
            lost.append("with a target word of unknown tokens")
        examples.append(
            Example(
                input_ids=ids,
                token_type_ids=[e["token_type_ids"][i] for e in encodings],
                special_mask=special,
                spans=token_spans,
                label=label,
                index=i,
                lost=lost,
            )
        )
    return examples


def collate(examples: Sequence[Example], pad_id: int) -> Batch:
    """One padded batch, sequence-major: all first sentences, then all second."""
    n_sequences = len(examples[0].input_ids)

    def padded(name: str, fill: int) -> Tensor:
        lists = [getattr(e, name)[q] for q in range(n_sequences) for e in examples]
        longest = max(map(len, lists))
        return torch.tensor([ids + [fill] * (longest - len(ids)) for ids in lists])

    lengths_A = torch.tensor([len(e.input_ids[q]) for q in range(n_sequences) for e in examples])
    input_ids_AT = padded("input_ids", pad_id)
    spans = [e.spans[q] for q in range(n_sequences) for e in examples if e.spans is not None]
    return Batch(
        input_ids=input_ids_AT,
        attention_mask=(torch.arange(input_ids_AT.shape[1]) < lengths_A[:, None]).long(),
        token_type_ids=padded("token_type_ids", 0),
        special_mask=padded("special_mask", 1),
        labels=torch.tensor([e.label for e in examples]),
        index=torch.tensor([e.index for e in examples]),
        spans=torch.tensor(spans) if spans else None,
        n_sequences=n_sequences,
    )


def _has_known_token(ids: list[int], special: list[int], unknown: int | None) -> bool:
    """Whether a token of the text itself is not the unknown one."""
    pairs = zip(ids, special, strict=True)
    return any(not is_special and token != unknown for token, is_special in pairs)


def _tokens_of(encoded: Any, i: int, text: int, span: Span) -> list[int]:
    """Tokens of row i that overlap a character span of its text number `text`."""
    offsets = zip(encoded["offset_mapping"][i], encoded.sequence_ids(i), strict=True)
    return [
        token
        for token, ((first, stop), sequence_id) in enumerate(offsets)
        if sequence_id == text and first < span[1] and stop > span[0]
    ]
