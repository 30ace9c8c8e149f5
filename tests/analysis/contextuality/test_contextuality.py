"""Contextuality against loops over pairs on a tiny encoder; pitfalls; tables and figures."""

import itertools
import os
import re
from functools import partial

import numpy as np
import pytest
import torch

from isotrain.analysis.contextuality import analysis as contextuality
from isotrain.analysis.contextuality.analysis import Contextuality, ranked_words, sentence_means
from isotrain.analysis.data_sets import read_corpus
from isotrain.analysis.encode import Words, draw_sentences
from isotrain.analysis.jackknife import (
    anisotropy,
    mean_over_sentences,
    occurrences,
    self_similarity,
)
from isotrain.encoders.static import TableEncoder
from isotrain.metrics.intra_sentence_similarity import intra_sentence_similarity
from isotrain.metrics.max_explainable_variance import max_explainable_variance
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.runs import Rows, minilm, rows_of, tiny

PEOPLE = ("doctor", "lawyer", "king", "pilot", "farmer", "actor")
PLACES = ("in the garden", "at the store", "by the sea")
TEXTS = [
    f"The {one} called the {other} {place}."
    for one, other in itertools.permutations(PEOPLE, 2)
    for place in PLACES
][::2]
SMALL = {
    **{"corpus": "rte", "splits": ["train"], "ranked_words": 0},
    "words": ["doctor", "the", "xyz", "boss", "garden"],
}


@pytest.fixture
def measured(encoder, subject_of):
    """`measured(texts, …)`: records of both parts, by kind."""

    def measure(texts=TEXTS, encoder=encoder, **arguments):
        subject = subject_of(encoder, Rows(train=rows_of(texts)))
        parts = Contextuality(**{**SMALL, **arguments}).parts(subject)
        records = [record for part in parts for record in part.measure().records]
        kinds = dict.fromkeys(record["kind"] for record in records)
        return {kind: [r for r in records if r["kind"] == kind] for kind in kinds}

    return measure


def cosine(a_D, b_D):
    return float(a_D @ b_D / np.linalg.norm(a_D) / np.linalg.norm(b_D))


def tokens_of(encoder, texts):
    """(layer, sentence, piece, row) of each token that is neither special nor punctuation."""
    found = []
    for i, one in enumerate(dict.fromkeys(texts)):
        encoded = encoder.tokenizer(one)
        pieces = encoder.tokenizer.convert_ids_to_tokens(encoded["input_ids"])
        with torch.no_grad():
            output = encoder.model(
                **encoded.convert_to_tensors("pt", prepend_batch_axis=True),
                output_hidden_states=True,
            )
        for layer, states in enumerate(output.hidden_states):
            for piece, row_D in zip(pieces, states[0].double().numpy(), strict=True):
                if piece not in ("[CLS]", "[SEP]", "."):
                    found.append((layer, i, piece, row_D))
    return found


@pytest.fixture(scope="module")
def slow(encoder):
    """Measures of layer 1, one pair of rows at a time, with all words of the texts."""
    rows = [row[1:] for row in tokens_of(encoder, TEXTS) if row[0] == 1]
    cone = np.mean([cosine(a[2], b[2]) for a, b in itertools.combinations(rows, 2) if a[0] != b[0]])
    own = {}
    for word in {row[1] for row in rows}:
        of_word = [row[2] for row in rows if row[1] == word]
        if len(of_word) >= 5:
            own[word] = np.mean([cosine(a, b) for a, b in itertools.combinations(of_word, 2)])
    intra = []
    for sentence in {row[0] for row in rows}:
        of_sentence = np.stack([row[2] for row in rows if row[0] == sentence])
        intra.append(np.mean([cosine(row, of_sentence.mean(axis=0)) for row in of_sentence]))
    return {"cone": cone, "own": own, "intra": np.mean(intra), "rows": rows}


def test_against_loops_over_pairs(measured, slow):
    found = measured()["layer"][1]
    assert found["n_rows"] == len(slow["rows"])
    assert found["n_sentences"] == found["n_corpus"] == len(TEXTS)
    assert found["anisotropy"] == pytest.approx(slow["cone"], abs=1e-5)
    self_similarity = np.mean(list(slow["own"].values()))
    assert found["self_similarity"] == pytest.approx(self_similarity, abs=1e-5)
    assert found["self_similarity_adjusted"] == pytest.approx(
        self_similarity - slow["cone"], abs=1e-5
    )
    assert found["n_words"] == len(slow["own"])
    assert found["intra_sentence_similarity"] == pytest.approx(slow["intra"], abs=1e-5)
    assert found["intra_sentence_similarity_adjusted"] == pytest.approx(
        slow["intra"] - slow["cone"], abs=1e-5
    )
    norms = [np.linalg.norm(row[2]) for row in slow["rows"]]
    assert found["mean_norm"] == pytest.approx(np.mean(norms), rel=1e-5)


def test_a_chosen_word_against_loops(measured, slow):
    records = [r for r in measured()["word"] if r["layer"] == 1]
    for record in records:
        word = record["word"]
        assert record["n"] == sum(row[1] == word for row in slow["rows"])
        assert record["self_similarity"] == pytest.approx(slow["own"][word], abs=1e-5)
        wanted = slow["own"][word] - slow["cone"]
        assert record["self_similarity_adjusted"] == pytest.approx(wanted, abs=1e-5)
        assert record["n_sets"] == record["n"] // 5
    assert {r["word"] for r in records} == {"doctor", "the", "garden"}


def test_words_of_all_frequencies_are_added_by_rank(measured, encoder):
    counts = {"the": 100, "dog": 40, "king": 20, "garden": 12, "horse": 9, "old": 7, "bank": 7}
    texts = [
        f"{w.title()} {'xyz ' * (k % 3)}doctor, CAT" for w, n in counts.items() for k in range(n)
    ]
    words = Words(encoder.tokenizer, punctuation=False)
    known = ["doctor", "the", "dog", "king", "garden", "horse", "bank", "old"]  # by the alphabet
    pick = partial(ranked_words, texts, words)  # xyz is unknown, cat is three pieces
    assert pick([], 5, 8) == ["doctor", "the", "dog", "king", "horse", "old"]
    assert pick([], 5, 2) == ["doctor", "old"]
    assert pick(["old"], 9, 2) == ["doctor", "horse"]
    assert pick([], 1000, 9) == []
    assert pick([], 5, 400) == known
    found = [r["word"] for r in measured(words=["garden"], ranked_words=2)["word"]]
    assert len(set(found)) == 3
    assert {"garden", "the"} < set(found)  # and the rarest


def test_explained_variance_of_words_that_occur_five_times(measured, encoder):
    """Nothing is drawn then: the share of the first singular value of each word's five rows."""
    texts = [" ".join(PEOPLE[k:] + PEOPLE[:k]) for k in range(5)]
    found = measured(texts, words=["king"])
    for layer in range(3):
        own = {}
        for at, _, piece, row_D in tokens_of(encoder, texts):
            if at == layer:
                own.setdefault(piece, []).append(row_D)
        squares = [np.linalg.svd(np.stack(rows), compute_uv=False) ** 2 for rows in own.values()]
        wanted = np.mean([square[0] / square.sum() for square in squares])
        record = found["layer"][layer]
        assert record["n_words"] == len(PEOPLE)
        assert record["max_explainable_variance"] == pytest.approx(wanted, abs=1e-6)
        king = squares[list(own).index("king")]
        assert found["word"][layer]["max_explainable_variance"] == pytest.approx(
            king[0] / king.sum(), abs=1e-6
        )


def test_the_baseline_of_explained_variance_is_that_of_the_metric(measured, monkeypatch):
    """Its error is measured here."""
    seen = []

    def noted(x_ND, words_N, center, n, n_baseline, seed):
        seen.append(max_explainable_variance(x_ND, words_N, center, n, contextuality.N_SETS, seed))
        return max_explainable_variance(x_ND, words_N, center, n, n_baseline, seed)

    monkeypatch.setattr(contextuality, "max_explainable_variance", noted)
    for record, wanted in zip(measured()["layer"], seen, strict=True):
        name = "max_explainable_variance"
        assert record[f"{name}_baseline"] == pytest.approx(float(wanted["baseline"]), abs=1e-12)
        assert record[f"{name}_adjusted"] == pytest.approx(float(wanted["adjusted"]), abs=1e-12)
        assert record[f"{name}_adjusted_error"] > record[f"{name}_error"] > 0
        assert record[f"{name}_baseline"] > 1 / 5


def same(first, second):
    """Whether two lists of records differ in nothing but how many sentences a corpus has."""
    keys = [key for key in first[0] if key not in ("n_corpus", "n_cut")]
    return all(a[key] == b[key] for a, b in zip(first, second, strict=True) for key in keys)


def test_repeated_sentences_raise_nothing(measured):
    """Each premise of SNLI stands three times; equal rows would be occurrences with cosine 1."""
    once = measured()
    thrice = measured([text for text in TEXTS for _ in range(3)])
    assert same(once["layer"], thrice["layer"])
    assert same(once["word"], thrice["word"])


def test_neither_cls_nor_sep_is_measured(measured):
    """CLS and SEP of all sentences are alike, and would be the commonest words."""
    encoder = tiny()
    plain = measured(encoder=encoder)
    with torch.no_grad():
        table = encoder.model.embeddings.word_embeddings.weight
        for token in ("[CLS]", "[SEP]"):
            table[encoder.tokenizer.convert_tokens_to_ids(token)] += 100.0
    moved = measured(encoder=encoder)
    assert moved["layer"][0]["mean_norm"] == plain["layer"][0]["mean_norm"]
    assert same(plain["layer"][:1], moved["layer"][:1])  # layer 0: no other token sees them


def test_cls_is_read_where_it_stands_and_its_mean_has_a_share(measured, encoder):
    for record in measured()["cls"]:
        states = []
        for one in TEXTS:
            ids = torch.tensor([encoder.tokenizer(one)["input_ids"]])
            with torch.no_grad():
                output = encoder.model(input_ids=ids, output_hidden_states=True)
            states.append(output.hidden_states[record["layer"]][0, 0].double())
        share = (
            torch.stack(states).mean(dim=0).norm() ** 2
            / torch.stack(states).norm(dim=1).pow(2).mean()
        )
        assert record["n_cls"] == len(TEXTS)
        assert record["cls_mean_share"] == pytest.approx(share.item(), abs=1e-5)
        rows = np.stack([one.numpy() for one in states])
        ratio = np.linalg.norm(rows.mean(axis=0)) / np.linalg.norm(rows, axis=1).mean()
        assert record["cls_mean_norm"] == pytest.approx(ratio, abs=1e-5)
        pairs = [cosine(a.numpy(), b.numpy()) for a, b in itertools.combinations(states, 2)]
        assert record["cls_mean_cosine"] == pytest.approx(np.mean(pairs), abs=1e-5)


def test_words_that_are_left_out(measured):
    texts = [one.replace("garden", "xyz") for one in TEXTS]
    pieces = measured(texts)
    reasons = {r["word"]: r["reason"] for r in pieces["word left out"]}
    assert reasons == {
        "xyz": "3 pieces",
        "boss": "occurs 0 times, not 5",
        "garden": "occurs 0 times, not 5",
    }


def test_intra_sentence_similarity_is_that_of_the_metric():
    """Its mean, error and shuffled sentences; a sentence of one word is left out."""
    generator = torch.Generator().manual_seed(0)
    sentences_N = torch.tensor([0] * 4 + [1] * 3 + [2] + [3] * 6 + [4] * 2)
    x_ND = torch.randn(len(sentences_N), 5, generator=generator).double() + 0.5
    wanted = intra_sentence_similarity(x_ND, sentences_N, seed=3)
    found = sentence_means(x_ND, sentences_N, seed=3)
    assert found.id_G.tolist() == [0, 1, 3, 4]
    estimate = mean_over_sentences(found.actual_G, found.id_G)
    assert estimate.value.item() == pytest.approx(float(wanted["value"]), abs=1e-12)
    assert estimate.error.item() == pytest.approx(float(wanted["standard_error"]), abs=1e-12)
    above = (found.actual_G - found.shuffled_G).mean().item()
    assert above == pytest.approx(float(wanted["above_shuffled"]), abs=1e-12)


def test_errors_of_adjusted_measures_leave_out_a_sentence_of_the_difference(measured, slow):
    record = measured()["layer"][1]
    sentences, pieces, rows = zip(*slow["rows"], strict=True)
    x_ND, sentences_N = torch.from_numpy(np.stack(rows)), torch.tensor(sentences)
    words_N = torch.from_numpy(np.unique(pieces, return_inverse=True)[1])
    adjusted = self_similarity(x_ND, words_N, sentences_N, 5).less(anisotropy(x_ND, sentences_N))
    wanted = adjusted.error.item()  # held to loops in test_jackknife.py
    assert record["self_similarity_adjusted_error"] == pytest.approx(wanted, rel=1e-3)
    assert record["n_intra"] == len(TEXTS)


def test_a_word_and_the_cloud_share_their_sentences(measured, monkeypatch, encoder):
    """A sentence has one number in both, so that leaving it out moves both figures."""
    samples, numbers = [], []

    def drawn(*arguments):
        samples.append(draw_sentences(*arguments))
        return samples[-1]

    def of_word(x_ND, sentences_N):
        numbers.append(sentences_N)
        return occurrences(x_ND, sentences_N)

    monkeypatch.setattr(contextuality, "draw_sentences", drawn)
    monkeypatch.setattr(contextuality, "occurrences", of_word)
    measured(words=["garden"])
    garden = encoder.tokenizer.convert_tokens_to_ids("garden")
    has_it = [i for i, ids in enumerate(samples[0].tokens.ids) if garden in ids]
    assert sorted(numbers[0].tolist()) == has_it
    assert 0 < len(has_it) < len(TEXTS)


@pytest.mark.real_data
@pytest.mark.slow
def test_minilm_on_snli(subject_of):
    """Every `beverage` of SNLI is found once, and the layers look as they are known to."""
    source = LocalSource(os.environ["ISOTRAIN_DATA_DIR"])
    subject = subject_of(minilm(), source, batch_size=32)
    analysis = Contextuality(max_rows=2000, ranked_words=0)
    layers, words, cls = (part.measure().records for part in analysis.parts(subject))
    assert len(cls) == len(layers)
    splits = ("train", "dev", "test")
    sentences = {one.casefold() for one in read_corpus(source, "snli", splits, "[UNK]")}
    n = sum(len(re.findall(r"\bbeverage\b", one)) for one in sentences)
    assert words[0]["n"] == n >= 5
    # The cone is narrowest in the middle; the last layer was trained to be even.
    anisotropy = [record["anisotropy"] for record in layers]
    assert anisotropy.index(max(anisotropy)) in (2, 3, 4, 5)
    assert anisotropy[-1] < 0.1 < anisotropy[3]
    # Words change most in the middle, and the sentence shows in the last layer.
    self_similarity = [record["self_similarity_adjusted"] for record in layers]
    assert self_similarity[0] == max(self_similarity) > 0.8
    above = [record["intra_sentence_above_shuffled"] for record in layers]
    assert abs(above[0]) < 0.02
    assert above[-1] == max(above) > 0.2


def test_word_vectors_have_no_row_for_cls(measured):
    """Theirs is a zero vector, which is no embedding of a sentence."""
    tokenizer = tiny().tokenizer
    vectors = TableEncoder(torch.eye(len(tokenizer)), tokenizer, "one dimension a word")
    assert {"layer", "word"} <= {*measured(encoder=vectors)}
    assert "cls" in measured()
    assert "cls" not in measured(encoder=vectors)
