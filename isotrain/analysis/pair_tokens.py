"""Sentence pairs as one sequence, as a tokenizer and an encoder see them. A sequences, T tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from isotrain.analysis.encode import Tokens, tokenise_columns
from isotrain.encoders.base import Encoder
from isotrain.types import Batch, Edit, EncoderOutput


def tokenise_pairs(
    tokenizer: Any, pairs: Sequence[tuple[str, str]], max_length: int
) -> tuple[Tokens, list[list[int | None]]]:
    """Tokens of pairs, one sequence a pair, and which sentence (0, 1) each token is of.

    That is None for special tokens. The longer sentence of a pair is cut first.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> tokens, owners = tokenise_pairs(build_tiny(8, 1, 1).tokenizer, [("the", "the")], 9)
    >>> owners
    [[None, 0, None, 1, None]]
    """
    first, second = [one for one, _ in pairs], [two for _, two in pairs]
    return tokenise_columns(tokenizer, [first, second], max_length)


class SegmentedPairs:
    """An encoder that sees the second sentence of a sequence as segment 1, as in fine-tuning.

    Segment 1 begins behind the first token that ends a sentence (SEP); pads are in segment 0. An
    encoder without segments, or a tokenizer without SEP, is left as it is.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def __call__(self, batch: Batch, after_block: Mapping[int, Edit]) -> EncoderOutput:
        """Hidden states of a batch whose segments are set."""
        end = self.encoder.tokenizer.sep_token_id
        if end is not None:
            batch = replace(batch, token_type_ids=_segments(batch, end))
        found: EncoderOutput = self.encoder(batch, after_block)
        return found


def _segments(batch: Batch, end: int) -> Tensor:
    is_end_AT = (batch.input_ids == end).long()
    behind_AT: Tensor = (is_end_AT.cumsum(dim=1) - is_end_AT).clamp(max=1)
    return behind_AT * batch.attention_mask
