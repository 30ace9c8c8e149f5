"""Probes of structure: labels of each task, control tasks, what layers of known content score."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_selection import f_classif

from isotrain.analysis.structure_probe import analysis
from isotrain.analysis.structure_probe.analysis import (
    StructureProbe,
    control_labels,
    correlation_ratio,
    read_task,
    tag_directions,
)
from isotrain.encoders.static import TableEncoder
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.annotated_rows import sentences
from tests.analysis.runs import of, outcome_of, tiny


@pytest.fixture
def source(data_dir):
    return LocalSource(str(data_dir))


def test_labels_are_those_of_the_data(source):
    rows = sentences(90)
    for task, n in (("pos", 90), ("depth", 90), ("chunks", 45), ("length", 45)):
        found = read_task(source, task)
        assert found.sentences == [words for _, words, _ in rows[:n]]
        if task == "chunks":
            assert found.label == [chunks for *_, chunks in rows[:n]]
        if task == "length":
            assert found.label == [[len(words)] for words in found.sentences]
        if task == "pos":
            assert all(own[0] == "DT" and own[-1] == "." for own in found.label)
        if task == "depth":
            assert all(own[0] == 2 and own[-1] == 1 for own in found.label)


def test_word_content_is_the_one_word_of_middle_frequency(source, monkeypatch):
    monkeypatch.setattr(analysis, "MOST_FREQUENT", 3)
    monkeypatch.setattr(analysis, "N_WORDS", 4)
    count = Counter(w for _, words, _ in sentences(45) for w in {*words} if w.isalpha())
    classes = {word for word, _ in count.most_common()[3:7]}
    found = read_task(source, "word_content")
    wanted = [
        (words, [w for w in {*words} if w in classes])
        for _, words, _ in sentences(45)
        if len({*words} & classes) == 1
    ]
    assert [*zip(found.sentences, found.label, strict=True)] == wanted
    assert 0 < len(wanted) < 45


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.integers(0, 50))
def test_a_control_label_belongs_to_the_word(words, seed):
    label = np.arange(5)
    found = control_labels(words, label, seed)
    by_word = dict(zip(words, found, strict=True))
    assert [by_word[word] for word in words] == found.tolist()
    assert {*found.tolist()} <= {*label.tolist()}


def test_words_tell_their_tag_and_learn_the_control_by_heart(subject_of, source):
    """Each word has an own dimension, and here one tag: tag and control are both known."""
    tokenizer = tiny().tokenizer
    encoder = TableEncoder(torch.eye(len(tokenizer)), tokenizer, "one dimension a word")
    given = StructureProbe(tasks=["pos", "depth"], max_train=300, max_eval=100, penalties=[1e-4])
    outcome = outcome_of(given, subject_of(encoder, source))
    (pos,) = of(outcome, "probe", task="pos")
    assert pos["test"] == 1.0
    assert pos["control"] == 1.0
    assert pos["selectivity"] == 0.0
    assert pos["n_classes"] == 6
    assert 300 <= pos["n_train"] < 320
    assert 0.2 < pos["majority"] < 0.5
    (depth,) = of(outcome, "probe", task="depth")
    assert depth["measure"] == "spearman"
    assert 0.3 < depth["test"] < 1.0  # nouns are at two depths


def test_the_correlation_ratio_is_that_of_an_analysis_of_variance():
    generator = np.random.default_rng(0)
    tag_N = generator.choice(["DT", "NN", "VBD"], 60)
    value_NR = generator.normal(size=(60, 4)) + (tag_N == "VBD")[:, None] * [0.0, 1.0, 3.0, 0.2]
    f_R, _ = f_classif(value_NR, tag_N)
    np.testing.assert_allclose(correlation_ratio(value_NR, tag_N), 2 * f_R / (2 * f_R + 57))
    is_past_N = (tag_N == "VBD").astype(float)
    r_R = [np.corrcoef(is_past_N, own_N)[0, 1] for own_N in value_NR.T]
    np.testing.assert_allclose(correlation_ratio(value_NR, is_past_N), np.square(r_R))
    assert correlation_ratio(np.ones((4, 1)), np.array([0, 0, 1, 1])) == 0


def test_a_direction_of_one_class_of_tags_is_found():
    """The widest direction parts punctuation, the second the past tense, the third nothing."""
    tags = np.array([*[".", "VBD", "DT", "NN"] * 30])
    x_ND = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32) * 0.01
    x_ND[:, 4] += 100.0 * (tags == ".")
    x_ND[:, 2] += 10.0 * (tags == "VBD")
    x_ND[:, 0] += np.random.default_rng(1).normal(size=120)
    first, second, third, *_ = tag_directions(x_ND, tags)
    assert first["punctuation"] > 0.99 > second["punctuation"]
    assert second["past_tense"] > 0.85
    for one in (first, second):
        assert one["function_word"] < 0.3
        assert one["any_tag"] > 0.99
    assert third["any_tag"] < 0.2
    assert [one["direction"] for one in (first, second, third)] == [1, 2, 3]
    shares = np.linalg.svd(x_ND - x_ND.mean(axis=0), compute_uv=False) ** 2
    assert second["variance"] == pytest.approx(shares[1] / shares.sum(), rel=1e-4)


def test_length_is_read_from_the_mean_of_a_sentence(subject_of, encoder, source):
    given = StructureProbe(tasks=["length"], max_train=50, penalties=[0.01])
    found = of(outcome_of(given, subject_of(encoder, source)), "probe", layer=0)[0]
    assert found["test"] > 0.5
    assert "control" not in found


def test_a_task_without_examples_is_an_error(subject_of, encoder, source):
    subject = subject_of(encoder, source)
    with pytest.raises(ValueError, match="word_content has 0 examples of it in 0 sentences"):
        outcome_of(StructureProbe(tasks=["word_content"]), subject)
