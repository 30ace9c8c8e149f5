"""Where sentences of a tokenised paragraph end, and how they read as ordinary text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.tasks.text import as_written, is_heading, n_words, split_sentences


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("", []),
        ("  \n", []),
        ("No end mark", ["No end mark"]),
        (" A b . C d ! E f ? \n", ["A b .", "C d !", "E f ?"]),
        ("A b ... C d .", ["A b ... C d ."]),
        ("He came . 3 men left .", ["He came .", "3 men left ."]),
        ("<unk> ran . <unk> hid .", ["<unk> ran .", "<unk> hid ."]),
        ("Tim , Jr . , sang . So did I .", ["Tim , Jr . , sang .", "So did I ."]),
        ("It was 5 . and more .", ["It was 5 . and more ."]),
        ("What ? ! Now ?", ["What ? !", "Now ?"]),
        ("Mr. Fox of the U.S. Army ate . He ran .", ["Mr. Fox of the U.S. Army ate .", "He ran ."]),
        # quotes
        (
            'A said " Go . Run ! " and left . B ran .',
            ['A said " Go . Run ! " and left .', "B ran ."],
        ),
        ('She said " Go . " He ran .', ['She said " Go . "', "He ran ."]),
        ('" Go ? " he asked . " No . " Why ?', ['" Go ? " he asked .', '" No . "', "Why ?"]),
        ('The 7 " gun fired . It hit .', ['The 7 " gun fired .', "It hit ."]),  # no pair
        # brackets
        ("A ( b . C d ) e . F .", ["A ( b . C d ) e .", "F ."]),
        ("( A b . C d . ) E f .", ["( A b . C d . )", "E f ."]),
        ("A [ b ( c . D ) . E ] . F .", ["A [ b ( c . D ) . E ] .", "F ."]),
        ("A ( b . C d .", ["A ( b .", "C d ."]),  # no pair
        ('A ( " b . " ) . C .', ['A ( " b . " ) .', "C ."]),
    ],
)
def test_placed_paragraphs(paragraph, sentences):
    assert list(split_sentences(paragraph)) == sentences


tokens = st.sampled_from([*'.!?"()[],', "A", "b", "3", "<unk>", "Mr.", "..."])


@given(st.lists(tokens, max_size=30))
@settings(max_examples=200)
def test_nothing_is_lost_and_ends_are_ends(words):
    sentences = list(split_sentences(" ".join(words)))
    assert " ".join(sentences).split() == words
    for sentence in sentences[:-1]:
        kept = sentence.split()
        while kept[-1] in ('"', ")", "]"):
            kept.pop()
        assert kept[-1] in (".", "!", "?")
    for sentence in sentences[1:]:
        assert not sentence[0].islower()
        assert sentence[0] not in ".,!?)]"


@given(st.lists(tokens, max_size=30).filter(lambda w: not {'"', *"()[]"} & {*w}))
@settings(max_examples=200)
def test_without_quotes_and_brackets_each_end_mark_splits_before_a_capital(words):
    expected = sum(
        one in (".", "!", "?") and not two[0].islower() and two[0] not in ".,!?"
        for one, two in itertools.pairwise(words)
    )
    assert len(list(split_sentences(" ".join(words)))) == expected + bool(words)


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        (" = Title = \n", True),
        (" = = = Sub title = = = ", True),
        ("= Title =", True),
        (" = unfinished . ", False),
        (" a = b = c ", False),
        ("", False),
        (" = ", False),
    ],
)
def test_headings(line, is_one):
    assert is_heading(line) is is_one


@pytest.mark.parametrize(
    ("sentence", "n"), [("", 0), (", . ! @-@ –", 0), ("<unk> <unk> !", 0), ("It 's 5 .", 3)]
)
def test_what_counts_as_a_word(sentence, n):
    assert n_words(sentence) == n


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        (
            "A well @-@ known state @-@ of @-@ the @-@ art map .",
            "A well-known state-of-the-art map.",
        ),
        ("10 @,@ 000 m or 6 @.@ 2 mi ; 5 % : so !", "10,000 m or 6.2 mi; 5%: so!"),
        ("It 's what they 've done , I 'm sure .", "It's what they've done, I'm sure."),
        ('He said , " Go ( now ) . "', 'He said, "Go (now)."'),
        ('" One " and " two " .', '"One" and "two".'),
        ("It [ ... ] ended ... there ( $ 5 ) .", "It [...] ended... there ($5)."),
        ("The dogs ' tails .", "The dogs ' tails."),
        ("A 'twas stays 'sir .", "A 'twas stays 'sir."),
        ('( " a " )', '("a")'),
        ("<unk> , <unk> .", "<unk>, <unk>."),
    ],
)
def test_ordinary_text(sentence, text):
    assert as_written(sentence) == text


@given(st.lists(tokens, max_size=20))
@settings(max_examples=100)
def test_only_spaces_go(words):
    sentence = " ".join(words)
    assert as_written(sentence).replace(" ", "") == sentence.replace(" ", "")
