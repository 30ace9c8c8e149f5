"""Completing a tokenizer: pad and ends where they lack, nothing where they do not."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from isotrain.encoders.huggingface import complete


def words(**specials):
    backend = Tokenizer(models.WordLevel({"[END]": 0, "a": 1, "b": 2, "[PAD]": 3}, "[END]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **specials)


def test_ends_pads_segments_and_offsets():
    tokenizer = words(eos_token="[END]")
    assert tokenizer("a b", "b")["input_ids"] == [1, 2, 2]
    complete(tokenizer)
    assert (tokenizer.pad_token, tokenizer.pad_token_id) == ("[END]", 0)
    assert tokenizer("a b")["input_ids"] == [1, 2, 0]
    found = tokenizer(
        "a b",
        "b",
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    assert found["input_ids"] == [1, 2, 0, 2, 0]
    assert found["special_tokens_mask"] == [0, 0, 1, 0, 1]
    assert found["token_type_ids"] == [0, 0, 0, 1, 1]
    assert found["offset_mapping"] == [(0, 1), (2, 3), (0, 0), (0, 1), (0, 0)]
    assert found.sequence_ids() == [0, 0, None, 1, None]


def test_the_tokenizer_of_a_bert_stays_as_it_is(tokenizer):
    content = tokenizer.backend_tokenizer.to_str()
    complete(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == content


@pytest.mark.parametrize("specials", [{}, {"pad_token": "[PAD]"}])
def test_nothing_to_end_a_sentence_with(specials):
    with pytest.raises(ValueError, match="eos_token"):
        complete(words(**specials))


def test_the_unknown_token_serves_where_there_is_no_end_of_text():
    """As in GPT, whose tokenizer has no other special token."""
    tokenizer = words(unk_token="[END]")
    complete(tokenizer)
    assert tokenizer("a", "b")["input_ids"] == [1, 0, 2, 0]
    assert tokenizer("a c", return_special_tokens_mask=True)["special_tokens_mask"] == [0, 0, 1]
