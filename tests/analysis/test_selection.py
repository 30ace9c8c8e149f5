"""What counts as a word, and which words of a corpus are measured."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from isotrain.analysis.encode import Words, draw_occurrences, draw_sentences, tokenise
from tests.analysis.runs import pieces_of

TEXTS = [f"The old doctor number {k} called the lawyer, xyz." for k in range(40)]


@pytest.fixture(scope="module")
def byte_level():
    """A tokenizer as GPT-2 has it: no CLS and SEP, a word behind a space is another piece."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["he", "the", "Ġhe", "Ġthe"]
    vocabulary = {piece: i for i, piece in enumerate([*alphabet, *words, "<|endoftext|>"])}
    merges = [("h", "e"), ("Ġ", "he"), ("t", "he"), ("Ġ", "the")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<|endoftext|>")


def words_of(tokenizer, text, punctuation=False):
    tokens = tokenise(tokenizer, [text], 64)
    ids = [tokens.ids[0][t] for t in Words(tokenizer, punctuation).of(tokens, 0, text)]
    return tokenizer.convert_ids_to_tokens(ids)


def test_words_of_a_sentence(tokenizer):
    text = "The doctor, xyz 4!"
    assert words_of(tokenizer, text) == ["the", "doctor", "x", "##y", "##z", "4"]
    written = ["the", "doctor", ",", "x", "##y", "##z", "4", "!"]
    assert words_of(tokenizer, text, punctuation=True) == written


def test_the_mark_of_a_word_alone_in_a_piece_is_no_word():
    """SentencePiece gives it the characters of the piece after it."""
    pieces = [("<unk>", 0.0), ("▁", -1.0), ("4", -1.0), ("▁a", -2.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    assert fast.tokenize("a 4") == ["▁a", "▁", "4"]
    assert words_of(fast, "a 4") == ["▁a", "4"]


def test_ids_of_a_word(tokenizer, byte_level):
    words = Words(tokenizer, False)
    assert words.ids_of("doctor") == ({*tokenizer.convert_tokens_to_ids(["doctor"])}, "")
    assert words.ids_of("xyz") == (set(), "3 pieces")
    assert words.ids_of("✈") == (set(), "unknown to this tokenizer")
    # The first word of a text and one behind a space are one word.
    ids, reason = Words(byte_level, False).ids_of("the")
    assert reason == ""
    assert {*byte_level.convert_ids_to_tokens([*ids])} == {"the", "Ġthe"}


def drawn(tokenizer, texts=TEXTS, seed=0, max_rows=100):
    return draw_sentences(texts, Words(tokenizer, False), 64, seed, max_rows)


def test_whole_sentences_until_the_rows_are_full(tokenizer):
    sample = drawn(tokenizer)
    n = {i: len(words_of(tokenizer, text)) for i, text in enumerate(TEXTS)}
    assert 100 - max(n.values()) < len(sample.spans) <= 100
    assert len(sample.word_N) == len(sample.sentence_N) == len(sample.spans)
    assert sorted(set(sample.sentence_N.tolist())) == list(range(len(sample.tokens.ids)))
    assert not any(
        sample.tokens.special[i][t]
        for i, start, stop in zip(*sample.spans, strict=True)
        for t in range(start, stop)
    )


def test_sentences_that_the_tokenizer_cannot_tell_apart_count_once(tokenizer):
    texts = [form for text in TEXTS for form in (text, text.lower(), text.upper(), f"{text} ")]
    sample = drawn(tokenizer, texts, max_rows=10_000)
    assert len(sample.tokens.ids) == len(TEXTS)


def test_occurrences_of_words_each_as_often_as_it_stands(tokenizer):
    texts = [*TEXTS, "The doctor and the doctor.", "A watermelon.", "DOCTOR!", "No word of these."]
    words = Words(tokenizer, False)
    ids_of = {word: words.ids_of(word)[0] for word in ("doctor", "lawyer", "melon", "garden")}
    tokens, places = draw_occurrences(texts, words, 64, 0, ids_of, 1000)
    assert {word: len(spans) for word, spans in places.items()} == {
        "doctor": 43, "lawyer": 40, "melon": 0, "garden": 0,
    }  # fmt: skip
    assert pieces_of(tokenizer, tokens, places["doctor"]) == [["doctor"]] * 43
    assert len(tokens.ids) == 42  # sentences without one of the words are not kept
    capped = draw_occurrences(texts, words, 64, 0, ids_of, 7)[1]
    assert [len(spans) for spans in capped.values()] == [7, 7, 0, 0]


def test_case_and_accents_hide_no_occurrence(tokenizer):
    """The tokenizer drops them; a look for the bare spelling would miss these sentences."""
    words = Words(tokenizer, False)
    ids_of = {"doctor": words.ids_of("doctor")[0]}
    _, places = draw_occurrences(["A dóctor.", "One DOCTOR."], words, 64, 0, ids_of, 10)
    assert len(places["doctor"]) == 2


def test_a_sentence_that_is_too_long_by_itself_is_passed_over(tokenizer):
    long = " ".join(["the doctor"] * 20)
    short = [f"the doctor {k}" for k in range(6)]
    for seed in range(8):  # the long one is drawn first by some of them
        sample = drawn(tokenizer, [long, *short], seed, 10)
        assert 0 < len(sample.spans) <= 10
