"""Examples of tasks in one form, and the features of their rows."""

import numpy as np
import pytest
import torch

from isotrain.analysis.data_scale.measures import (
    NOWHERE,
    Encoded,
    Tagged,
    encoded,
    of_folder,
    sentence_examples,
    spans_of,
    tagged_examples,
    unseen_shares,
)
from isotrain.analysis.encode import tokenise
from isotrain.encoders.random_vectors import random_vectors
from isotrain.encoders.static import SPECIALS, TableEncoder, word_tokenizer
from isotrain.encoders.trial import padded_batch
from tests.analysis.runs import Rows


def pair(first, second, label):
    return {"sentence1": first, "sentence2": second, "label": label}


NOTHING = "\u200b"  # no character that a tokenizer keeps, and not blank
PAIRS = Rows(
    train=[pair("A dog sees", "the cat", 0), pair("a bird", "A dog sees", 1), pair("x", "y", -1)],
    dev=[pair("the cat", "A fish sees", 2), pair("z", "z", -1)],
)


def test_a_text_that_stands_in_several_rows_is_read_once():
    found = sentence_examples(PAIRS, "snli", 10, 10, 0)
    assert sorted(found.texts) == ["A dog sees", "A fish sees", "a bird", "the cat"]
    message = [[found.texts[v] for v in own] for own in found.vector_NJ]
    assert sorted(message[:2]) == [["A dog sees", "the cat"], ["a bird", "A dog sees"]]
    assert message[2] == ["the cat", "A fish sees"]
    assert (found.n_train, found.n_scored) == (2, 1)
    assert found.rows_of([2, 0]).tolist() == [2, 0]
    assert [found.texts[v] for v in found.group_E[:2]] == [own[0] for own in message[:2]]
    assert sorted(found.label_N[:2]) == [0, 1]
    assert found.label_N[2] == 2


def test_a_word_with_a_space_keeps_its_label():
    train = [Tagged(["10 000", "dogs", "bark"], ["B-NP", "I-NP", "B-VP"])]
    found = tagged_examples(
        [train, [Tagged(["10\u00a0000", "cats"], ["B-NP", "I-NP"])]], 0, 9, 9, 0
    )
    words = [found.texts[text][start:stop] for text, start, stop in found.span_V]
    assert words == ["10 000", "dogs", "bark", "10\u00a0000", "cats"]
    assert [found.classes[k] for k in found.label_N] == ["B-NP", "I-NP", "B-VP", "B-NP", "I-NP"]


@pytest.fixture
def tagged(tmp_path):
    def write(window):
        (tmp_path / "train.txt").write_text(
            "John B-PER\nsees O\nNew B-LOC\nYork I-LOC\n\nthe O\ndog O\n\nMary I-PER\n"
        )
        (tmp_path / "dev.conll").write_text("the O\nAcme B-ORG\ndog O\n")
        return tagged_examples(of_folder(tmp_path), window, 10, 10, 0)

    return write


def test_the_rows_of_a_tagged_sentence_are_its_words(tagged):
    found = tagged(0)
    words = [found.texts[text][start:stop] for text, start, stop in found.span_V]
    assert words == " ".join(found.texts).split(" ")
    assert words[7:] == ["the", "Acme", "dog"]
    tags = [found.classes[k] if k >= 0 else None for k in found.label_N]
    message = dict(zip(words[:7], tags[:7], strict=True))
    assert message == {
        "John": "B-PER", "sees": "O", "New": "B-LOC", "York": "I-LOC",
        "the": "O", "dog": "O", "Mary": "I-PER",
    }  # fmt: skip
    assert tags[7:] == ["O", None, "O"]  # no training row has B-ORG
    assert found.gold == [["O", "B-ORG", "O"]]
    assert (found.n_train, found.n_scored) == (3, 1)
    assert found.rows_of([3, 0]).tolist() == [7, 8, 9, *found.rows_E[0]]
    of_text = [[found.span_V[row][0] for row in rows] for rows in found.rows_E]
    assert of_text == [[e] * len(found.words_E[e]) for e in range(4)]
    assert len(set(found.stratum_E[:3])) == 2  # PER, and none


def test_the_share_of_unseen_words_is_of_the_chosen_examples():
    found = sentence_examples(PAIRS, "snli", 10, 10, 0)
    dog = [e for e in range(2) if "dog" in found.words_E[e] and "bird" not in found.words_E[e]]
    assert found.words_E[2] == ["the", "cat", "a", "fish", "sees"]
    bird = 1 - dog[0]
    assert unseen_shares(found, [*dog, bird], [1, 2]).tolist() == [[1 / 5], [1 / 5]]  # fish
    assert unseen_shares(found, [bird, *dog], [1, 2]).tolist() == [[3 / 5], [1 / 5]]
    assert unseen_shares(found, [bird], [1]).tolist() == [[3 / 5]]  # the, cat, fish


def test_features_of_pairs_and_neighbours():
    vectors = torch.tensor([[1.0, -2.0], [3.0, 5.0], [0.0, 0.0]])
    pairs = Encoded(vectors, torch.tensor([[0, 1], [1, NOWHERE]]), {})
    assert pairs.features([0, 1]).tolist() == [
        [1, -2, 3, 5, 2, 7, 3, -10],
        [3, 5, 0, 0, 3, 5, 0, 0],
    ]
    words = Encoded(vectors, torch.tensor([[NOWHERE, 0, 1], [0, 1, NOWHERE]]), {})
    assert words.features([1, 0]).tolist() == [[1, -2, 3, 5, 0, 0], [0, 0, 1, -2, 3, 5]]


def test_a_vector_is_the_mean_of_the_tokens_of_its_characters(tagged, encoder, subject_of):
    found = tagged(0)
    subject = subject_of(encoder, batch_size=2)
    own = encoded(subject, found)
    for row, (text, start, stop) in enumerate(found.span_V):
        batch = tokenise(encoder.tokenizer, [found.texts[text]], 64)
        states = encoder(padded_batch([batch.ids[0]], 0), {}).last[0]
        of_word = [
            state
            for state, (a, b), special in zip(states, batch.offsets[0], batch.special[0])  # noqa: B905
            if not special and a < stop and b > start
        ]
        assert len(of_word) >= 1
        expected = torch.stack(of_word).mean(dim=0).detach()
        np.testing.assert_allclose(own.features([row])[0], expected, atol=1e-5)
    assert (own.facts["n_cut"], own.facts["n_absent"]) == (0, 0)


def test_special_tokens_are_no_part_of_a_mean_and_cut_words_have_none(tagged, tokenizer):
    found = tagged(0)
    for length in (64, 5):
        tokens = tokenise(tokenizer, found.texts, length)
        spans, place_V = spans_of(tokens, found)
        for s, a, b in zip(spans.sentence_N, spans.start_N, spans.stop_N, strict=True):
            assert not any(tokens.special[s][a:b])
        absent = int((place_V[:-1] == NOWHERE).sum())
        assert (absent == 0) == (length == 64)
        assert len(spans) == 10 - absent
        assert sorted(place_V[place_V != NOWHERE]) == list(range(len(spans)))


def test_a_text_that_was_cut_is_the_mean_of_what_is_left(encoder, subject_of):
    long = "the old doctor called the lawyer"
    rows = [{"sentence": long, "label": 0}, {"sentence": "dog", "label": 1}]
    found = sentence_examples(Rows(train=rows, dev=rows[1:]), "sst2", 10, 10, 0)
    own = encoded(subject_of(encoder, max_length=5), found)
    (row,) = (n for n in range(2) if found.texts[found.vector_NJ[n, 0]] == long)
    assert (own.facts["n_cut"], own.facts["n_absent"]) == (1, 0)
    short = sentence_examples(
        Rows(train=[{**rows[0], "sentence": "the old doctor"}, rows[1]], dev=rows[1:]),
        *("sst2", 10, 10, 0),
    )
    (other,) = (n for n in range(2) if short.texts[short.vector_NJ[n, 0]] != "dog")
    expected = encoded(subject_of(encoder, max_length=5), short).features([other])
    np.testing.assert_allclose(own.features([row]), expected, atol=1e-6)


def test_a_sentence_without_tokens_is_0_and_unknown_tokens_are_counted(tokenizer, subject_of):
    source = Rows(
        train=[{"sentence": NOTHING, "label": 0}, {"sentence": "dog \u4e2d\u56fd", "label": 1}],
        dev=[{"sentence": "dog", "label": 0}],
    )
    found = sentence_examples(source, "sst2", 10, 10, 0)
    vectors = random_vectors(tokenizer, 8, 0, "tiny")
    own = encoded(subject_of(vectors), found)
    (empty,) = (n for n in range(3) if found.texts[found.vector_NJ[n, 0]] == NOTHING)
    assert own.features([empty]).tolist() == [[0.0] * 8]
    assert own.facts["n_absent"] == 1
    assert own.facts["unknown_share"] == pytest.approx(
        2 / 4
    )  # dog, dog, and two of no known letter


def test_unknown_words_are_no_part_of_a_mean_of_word_vectors(subject_of):
    table = torch.tensor([[0.0, 0.0]] * 4 + [[1.0, 2.0], [3.0, -2.0]])
    encoder = TableEncoder(table, word_tokenizer([*SPECIALS.values(), "dog", "cat"], True), "two")
    texts = ["dog runs cat", "runs away", NOTHING, "cat barks loudly"]
    source = Rows(
        train=[{"sentence": text, "label": i % 2} for i, text in enumerate(texts)],
        dev=[{"sentence": "dog", "label": 0}],
    )
    found = sentence_examples(source, "sst2", 10, 10, 0)
    own = encoded(subject_of(encoder), found)
    message = {
        found.texts[place]: own.features([row])[0].tolist()
        for row, (place,) in enumerate(found.vector_NJ)
    }
    assert message == {
        "dog runs cat": [2, 0], "runs away": [0, 0], NOTHING: [0, 0],
        "cat barks loudly": [3, -2], "dog": [1, 2],
    }  # fmt: skip
    assert own.facts["n_absent"] == 2
    assert own.facts["unknown_share"] == pytest.approx(6 / 10)
