"""Trees in brackets, the tokens of words, and how sentences are split."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isotrain.analysis.annotated import chunked, find_words, parsed, three_parts
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.runs import pieces_of, tiny

LABELS = st.sampled_from(["NP", "NP-SBJ", "VP", "S=2", "WHNP-1"])
WORDS = st.sampled_from(["king", "1,000", "-LRB-", "n't", "%"])
LEAVES = st.tuples(st.sampled_from(["NN", ",", "PRP$"]), WORDS)
TREES = st.recursive(LEAVES, lambda inner: st.tuples(LABELS, st.lists(inner, min_size=1)))


def in_brackets(tree):
    label, inner = tree
    own = inner if isinstance(inner, str) else " ".join(map(in_brackets, inner))
    return f"({label} {own})"


def slow(tree, start=0, depth=0):
    """Words with tags and depths, and the constituents, by recursion."""
    label, inner = tree
    if isinstance(inner, str):
        return [(inner, label, depth)], []
    words, spans = [], []
    for one in inner:
        own, below = slow(one, start + len(words), depth + 1)
        words, spans = words + own, spans + below
    name = label.partition("=")[0].partition("-")[0]
    return words, [*spans, ((start, start + len(words)), name)]


@given(TREES)
def test_a_tree_against_recursion(tree):
    found = parsed(in_brackets(tree))
    words, spans = slow(tree)
    assert [*zip(found.words, found.tags, found.depths, strict=True)] == words
    assert {(ends, name) for ends, names in found.spans.items() for name in names} == {*spans}


def test_words_are_known_from_punctuation():
    tree = "(S (-LRB- -LRB-) (PRP$ its) ($ $) (CD 5) (`` ``) (NN price) (: --) (-RRB- -RRB-))"
    found = parsed(tree)
    kept = [word for word, is_word in zip(found.words, found.is_word, strict=True) if is_word]
    assert kept == ["its", "5", "price"]


def test_traces_are_no_words():
    tree = "(S (NP-SBJ-1 (DT The) (NN dog)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1)))) (. .))"
    found = parsed(tree)
    assert found.words == ["The", "dog", "was", "seen", "."]
    assert found == parsed(tree.replace(" (NP (-NONE- *-1))", ""))


def test_chunks_are_as_many_as_words(tmp_path):
    rows = [{"tokens": ["10 000", "dogs"], "chunks": ["B-NP", "I-NP"]}]
    rows.append({"tokens": ["the", "dog"], "chunks": ["B-NP"]})
    for split in ("train", "test"):
        file = tmp_path / "conll2000" / f"{split}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"train\.jsonl:2: tokens and chunks must be as many"):
        chunked(LocalSource(str(tmp_path)), "train")


def test_each_word_has_its_own_tokens_and_none_that_is_cut():
    tokenizer = tiny().tokenizer
    sentences = [["the", "kingdom", "xy"], ["a", "king"]]
    found = find_words(tokenizer, sentences, 32)
    pieces = pieces_of(tokenizer, found.tokens, found.spans)
    words = [sentences[i][k] for i, k in zip(found.spans.sentence_N, found.word_N, strict=True)]
    assert words == ["the", "kingdom", "xy", "a", "king"]
    assert ["".join(own).replace("##", "") for own in pieces] == words
    (n_cut,) = {len(find_words(tokenizer, sentences, 32).tokens.ids[0])}
    for length in range(3, n_cut):
        cut = find_words(tokenizer, sentences[:1], length)
        assert pieces_of(tokenizer, cut.tokens, cut.spans) == pieces[: len(cut.word_N)]
        assert len(cut.word_N) < 3
    only = find_words(tokenizer, sentences, 32, [[2], []])
    assert pieces_of(tokenizer, only.tokens, only.spans) == [pieces[2]]


@pytest.mark.parametrize("n", [5, 23, 1000])
def test_parts_are_sixty_twenty_twenty_and_drawn_by_the_seed(n):
    part_N = three_parts(n, seed=3)
    assert [(part_N == part).sum() for part in ("dev", "test")] == [n // 5, n // 5]
    assert np.array_equal(part_N, three_parts(n, seed=3))
    assert n < 20 or not np.array_equal(part_N, three_parts(n, seed=4))
