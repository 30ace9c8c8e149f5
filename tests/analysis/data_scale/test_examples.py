"""Examples of tasks in one form, and the features of their rows."""

import pytest
import torch

from isotrain.analysis.data_scale.measures import (
    encoded,
    read_examples,
    unseen_shares,
)
from isotrain.analysis.encode import padded
from isotrain.encoders.random_vectors import random_vectors
from isotrain.encoders.static import SPECIALS, TableEncoder, word_tokenizer
from tests.analysis.runs import Rows


def pair(first, second, label):
    return {"sentence1": first, "sentence2": second, "label": label}


NOTHING = "\u200b"  # no character that a tokenizer keeps, and not blank
PAIRS = Rows(
    train=[pair("A dog sees", "the cat", 0), pair("a bird", "A dog sees", 1), pair("x", "y", -1)],
    dev=[pair("the cat", "A fish sees", 2), pair("z", "z", -1)],
)


def test_a_text_that_stands_in_several_rows_is_read_once():
    found = read_examples(PAIRS, "snli", 10, 10, 0)
    assert sorted(found.texts) == ["A dog sees", "A fish sees", "a bird", "the cat"]
    told = [[found.texts[v] for v in own] for own in found.text_NJ]
    assert sorted(told[:2]) == [["A dog sees", "the cat"], ["a bird", "A dog sees"]]
    assert told[2] == ["the cat", "A fish sees"]
    assert found.n_train == 2
    assert sorted(found.label_N[:2]) == [0, 1]
    assert found.label_N[2] == 2


def test_the_share_of_unseen_words_is_of_the_chosen_examples():
    found = read_examples(PAIRS, "snli", 10, 10, 0)
    dog = [e for e in range(2) if "dog" in found.words_N[e] and "bird" not in found.words_N[e]]
    assert found.words_N[2] == ["the", "cat", "a", "fish", "sees"]
    bird = 1 - dog[0]
    assert unseen_shares(found, [*dog, bird], [1, 2]).tolist() == [[1 / 5], [1 / 5]]  # fish
    assert unseen_shares(found, [bird, *dog], [1, 2]).tolist() == [[3 / 5], [1 / 5]]
    assert unseen_shares(found, [bird], [1]).tolist() == [[3 / 5]]  # the, cat, fish


def test_a_text_is_the_mean_of_its_tokens_without_specials(encoder, subject_of):
    found = read_examples(PAIRS, "snli", 10, 10, 0)
    x_NF, about = encoded(subject_of(encoder, batch_size=2), found)
    for row, own in enumerate(found.text_NJ):
        mean = []
        for text in own:
            ids = encoder.tokenizer(found.texts[text])["input_ids"]
            mean.append(encoder(padded([ids], 0), {}).hidden_states[2][0][1:-1].mean(dim=0))
        expected = torch.cat([*mean, (mean[0] - mean[1]).abs(), mean[0] * mean[1]])
        assert torch.allclose(x_NF[row], expected, atol=1e-5)
    assert (about["n_cut"], about["n_absent"]) == (0, 0)


def test_a_sentence_without_tokens_is_0_and_unknown_tokens_are_counted(tokenizer, subject_of):
    source = Rows(
        train=[{"sentence": NOTHING, "label": 0}, {"sentence": "dog \u4e2d\u56fd", "label": 1}],
        dev=[{"sentence": "dog", "label": 0}],
    )
    found = read_examples(source, "sst2", 10, 10, 0)
    vectors = random_vectors(tokenizer, 8, 0, "tiny")
    x_NF, about = encoded(subject_of(vectors), found)
    (empty,) = (n for n in range(3) if found.texts[found.text_NJ[n, 0]] == NOTHING)
    assert x_NF[empty].tolist() == [0.0] * 8
    assert about["n_absent"] == 1
    assert about["unknown_share"] == pytest.approx(2 / 4)  # dog, dog, and two of no known letter


def test_unknown_words_are_no_part_of_a_mean_of_word_vectors(subject_of):
    table = torch.tensor([[0.0, 0.0]] * 4 + [[1.0, 2.0], [3.0, -2.0]])
    encoder = TableEncoder(table, word_tokenizer([*SPECIALS.values(), "dog", "cat"], True), "two")
    texts = ["dog runs cat", "runs away", NOTHING, "cat barks loudly"]
    source = Rows(
        train=[{"sentence": text, "label": i % 2} for i, text in enumerate(texts)],
        dev=[{"sentence": "dog", "label": 0}],
    )
    found = read_examples(source, "sst2", 10, 10, 0)
    x_NF, about = encoded(subject_of(encoder), found)
    told = {found.texts[i]: x_NF[row].tolist() for row, (i,) in enumerate(found.text_NJ)}
    assert told == {
        "dog runs cat": [2, 0], "runs away": [0, 0], NOTHING: [0, 0],
        "cat barks loudly": [3, -2], "dog": [1, 2],
    }  # fmt: skip
    assert about["n_absent"] == 2
    assert about["unknown_share"] == pytest.approx(6 / 10)
