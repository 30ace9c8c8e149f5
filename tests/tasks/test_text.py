"""Task text: sentences of WikiText paragraphs as ordinary text, and STS-B beside them."""

import itertools
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from isotrain.tasks.data.demo_generator import DemoSource
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.text import (
    Text,
    as_written,
    is_heading,
    n_words,
    split_sentences,
    unknown_token,
)
from tests.parts import STSB

PARAGRAPHS = [
    " \n",
    " = Cats = \n",
    " \n",
    " Cats are well @-@ known <unk> . They sleep ( a lot ) . Why ? \n",
    " = = Sleep = = \n",
    " They sleep ( a lot ) . The <unk> <unk> <unk> cat . \n",
]


@pytest.fixture
def root(data_dir, tmp_path):
    """A folder with the paragraphs above for training, and the fixture's STS-B."""
    shutil.copytree(data_dir / "stsb", tmp_path / "stsb")
    (tmp_path / "wikitext-2").mkdir()
    for name in ("train", "valid"):
        (tmp_path / "wikitext-2" / f"{name}.txt").write_text("".join(PARAGRAPHS), encoding="utf-8")
    return tmp_path


def test_sentences_and_what_is_left_out(root):
    task = Text(min_words=4)
    rows = task.load(LocalSource(str(root)))
    file = root / "wikitext-2" / "train.txt"
    assert rows["train"] == [
        {"sentence1": "Cats are well-known <unk>.", "at": f"{file}:4"},
        {"sentence1": "They sleep (a lot).", "at": f"{file}:4"},
    ]
    assert task.left_out == {
        "train: headings": 2,
        "train: fewer than 4 words": 2,
        "train: repeated": 1,
    }


def test_dev_and_test_are_those_of_stsb(root):
    rows, pairs = (task.load(LocalSource(str(root))) for task in (Text(), STSB(form="bi")))
    assert (rows["dev"], rows["test"]) == (pairs["dev"], pairs["test"])


@pytest.mark.parametrize(("least", "n"), [(1, 4), (2, 3), (4, 2)])
def test_the_least_length(root, least, n):
    assert len(Text(min_words=least).load(LocalSource(str(root)))["train"]) == n


def test_no_sentence_long_enough_is_rejected(root):
    with pytest.raises(
        ValueError, match=r"none of 5 sentences in .*task\.min_words=9 words; lower"
    ):
        Text(min_words=9).load(LocalSource(str(root)))


def test_training_and_evaluation_are_encoded_each_their_way(root, tokenizer):
    task = Text(max_length=20, train_length=6)
    rows = task.load(LocalSource(str(root)))
    first, _ = task.encode(rows["train"], tokenizer)
    assert (len(first.input_ids), len(first.input_ids[0]), first.label) == (1, 6, 0.0)
    pair = task.encode(rows["dev"], tokenizer)
    assert [e.label for e in pair] == [row["score"] / 5 for row in rows["dev"]]
    assert max(len(ids) for e in pair for ids in e.input_ids) > 6
    assert pair == STSB(form="bi", max_length=20).encode(rows["dev"], tokenizer)


def test_a_rare_word_is_the_unknown_token(tokenizer):
    (example,) = Text().encode([{"sentence1": "q <unk>, z <unk>."}], tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(example.input_ids[0])
    assert tokens == ["[CLS]", "q", "[UNK]", ",", "z", "[UNK]", ".", "[SEP]"]
    assert example.special_mask == [[1, 0, 0, 0, 0, 0, 0, 1]]


def test_an_unknown_token_that_ends_a_text_stands_for_no_word():
    backend = Tokenizer(models.BPE(vocab={"a": 0, "<|end|>": 1}, merges=[]))
    byte_level = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<|end|>")
    assert unknown_token(byte_level) == "<unk>"
    backend = Tokenizer(models.WordLevel({"a": 0, "<|end|>": 1, "<unk>": 2}, unk_token="<|end|>"))
    specials = {"unk_token": "<|end|>", "eos_token": "<|end|>"}
    shared = PreTrainedTokenizerFast(tokenizer_object=backend, **specials)
    assert unknown_token(shared) == "<unk>"
    own = PreTrainedTokenizerFast(tokenizer_object=backend, **{**specials, "unk_token": "<unk>"})
    assert unknown_token(own) == "<unk>"


def test_a_prefix_stands_before_each_sentence(root, tokenizer):
    task = Text(min_words=4, prefix="the ")
    rows = task.load(LocalSource(str(root)))
    plain = Text(min_words=4).encode(rows["train"], tokenizer)
    the = tokenizer.convert_tokens_to_ids("the")
    for rows_of, others in ((rows["train"], plain), (rows["dev"], None)):
        examples = task.encode(rows_of, tokenizer)
        assert all(ids[1] == the for example in examples for ids in example.input_ids)
        if others:
            assert [[e.input_ids[0][0], *e.input_ids[0][2:]] for e in examples] == [
                list(e.input_ids[0]) for e in others
            ]


def test_the_official_names_of_the_files(root):
    folder = root / "wikitext-2"
    for name in ("train", "valid"):
        (folder / f"{name}.txt").rename(folder / f"wiki.{name}.tokens")
    rows = Text().load(LocalSource(str(root)))["train"]
    assert rows[0]["at"] == f"{folder / 'wiki.train.tokens'}:4"


def test_generated_paragraphs_give_sentences():
    task = Text()
    rows = task.load(DemoSource(seed=1))
    assert len(rows["train"]) > 5000
    assert len(rows["dev"]) == 500
    lengths = [len(row["sentence1"].split()) for row in rows["train"]]
    assert 5 < min(lengths) <= max(lengths) < 20
    assert all(row["sentence1"].count(".") == 1 for row in rows["train"])


# Where sentences end, and how they read as ordinary text


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
