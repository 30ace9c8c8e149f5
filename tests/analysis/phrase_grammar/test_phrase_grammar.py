"""Trees by distances, against enumeration; what a layer that knows the phrases scores."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.analysis.annotated import parsed, parses
from isotrain.analysis.encode import hidden_states
from isotrain.analysis.phrase_grammar.analysis import (
    PhraseGrammar,
    balanced,
    baselines,
    distances,
    f1,
    phrases,
    split_tree,
)
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.runs import of, outcome_of

GAPS = st.lists(st.integers(0, 5), min_size=0, max_size=7)


def every_tree(start, stop):
    """All binary trees of some words, as sets of spans of two words or more."""
    if stop - start == 1:
        return [frozenset()]
    own = frozenset({(start, stop)})
    return [
        own | left | right
        for middle in range(start + 1, stop)
        for left in every_tree(start, middle)
        for right in every_tree(middle, stop)
    ]


def splits_where_largest(tree, gaps):
    """Whether each phrase of a tree splits at the first of its largest distances."""
    for start, stop in tree:
        cut = start + 1 + int(np.argmax(gaps[start : stop - 1]))
        inner = [(a, b) for a, b in ((start, cut), (cut, stop)) if b - a > 1]
        if not tree.issuperset(inner):
            return False
    return True


@given(GAPS)
def test_the_tree_is_the_one_of_all_that_splits_at_the_largest_distances(gaps):
    n = len(gaps) + 1
    (wanted,) = [tree for tree in every_tree(0, n) if splits_where_largest(tree, gaps)]
    assert split_tree(gaps) == wanted - {(0, n)}


@given(GAPS)
def test_only_the_order_of_distances_counts(gaps):
    assert split_tree(gaps) == split_tree([2.0**gap - 7 for gap in gaps])


@given(st.integers(2, 12))
def test_baselines(n):
    found = baselines(n, np.random.default_rng(0))
    assert found["right branching"] == [{(k, n) for k in range(1, n - 1)}]
    assert found["left branching"] == [{(0, k) for k in range(2, n)}]
    assert all(len(tree) == n - 2 for own in found.values() for tree in own)
    depth = max([sum(a <= k < b for a, b in found["balanced"][0]) for k in range(n)])
    assert depth <= np.ceil(np.log2(n))
    assert len(balanced(n)) == n - 1


@given(GAPS.filter(lambda gaps: len(gaps) > 1), st.integers(0, 100))
def test_the_score_is_that_of_sets_and_is_one_for_the_tree_itself(gaps, seed):
    tree = split_tree(gaps)
    other = split_tree(np.random.default_rng(seed).random(len(gaps)))
    assert f1(tree, tree) == 1
    precision = recall = len(tree & other) / len(tree)  # binary trees have as many phrases
    assert f1(other, tree) == pytest.approx(2 * precision * recall / max(1e-9, precision + recall))


def test_phrases_leave_out_punctuation_single_words_and_the_sentence():
    tree = "(S (`` ``) (NP (DT the) (NN dog)) (, ,) (VP (VBZ sees) (NP (NNS cats))) ('' ''))"
    assert phrases(parsed(tree)) == ([1, 2, 4, 5], {(0, 2): {"NP"}, (2, 4): {"VP"}})


def test_distances_against_their_formulas():
    x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = distances(x[:-1], x[1:])
    for k, (u, v) in enumerate(pairwise(x.numpy())):
        cosine = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
        assert found["cosine"][k] == pytest.approx(1 - cosine)
        assert found["euclidean"][k] == pytest.approx(np.linalg.norm(u - v))


def test_a_layer_is_scored_as_by_a_slow_reference(subject_of, encoder, data_dir):
    subject = subject_of(encoder, LocalSource(str(data_dir)))
    found = outcome_of(PhraseGrammar(max_sentences=1000, threshold=100.0), subject)
    scores = []
    for one in parses(subject.source):
        kept, gold = phrases(one)
        encoded = encoder.tokenizer(
            " ".join(one.words), return_offsets_mapping=True, return_tensors="pt"
        )
        state = hidden_states(subject, encoded["input_ids"].tolist())[1][0]
        rows, begin = [], 0
        for word in one.words:
            offsets = encoded["offset_mapping"][0].tolist()
            own = [t for t, (a, b) in enumerate(offsets) if a < begin + len(word) and b > begin]
            rows.append(state[own].double().mean(dim=0).numpy())
            begin += len(word) + 1
        gaps = [np.linalg.norm(rows[a] - rows[b]) for a, b in pairwise(kept)]
        scores.append(f1(split_tree(gaps), gold))
    (record,) = of(found, "grammar", treatment="none", layer=1, distance="euclidean")
    n = record["n_dev"] + record["n_test"]
    mean = (record["n_dev"] * record["dev"] + record["n_test"] * record["test"]) / n
    assert n == len(scores)
    assert mean == pytest.approx(np.mean(scores), abs=1e-9)
    cut = of(found, "grammar", treatment="cut", layer=1, distance="euclidean")[0]
    assert (cut["test"], cut["n_outliers"]) == (record["test"], 0)  # nothing is beyond 100
    assert of(found, "baseline", treatment="right branching")[0]["recall_VP"] == 1.0
