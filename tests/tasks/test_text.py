"""Task text: sentences of WikiText paragraphs, what is left out of them, and STS-B beside them."""

from __future__ import annotations

import shutil

import pytest

from isotrain.tasks.data.demo_generator import DemoSource
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.stsb import STSB
from isotrain.tasks.text import Text

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
    rows, pairs = (task.load(LocalSource(str(root))) for task in (Text(), STSB("bi")))
    assert (rows["dev"], rows["test"]) == (pairs["dev"], pairs["test"])


@pytest.mark.parametrize(("least", "n"), [(1, 4), (2, 3), (4, 2)])
def test_the_least_length(root, least, n):
    assert len(Text(min_words=least).load(LocalSource(str(root)))["train"]) == n


def test_no_sentence_long_enough_is_refused(root):
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
    assert pair == STSB("bi", max_length=20).encode(rows["dev"], tokenizer)


def test_a_rare_word_is_the_unknown_token(tokenizer):
    (example,) = Text().encode([{"sentence1": "q <unk>, z <unk>."}], tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(example.input_ids[0])
    assert tokens == ["[CLS]", "q", "[UNK]", ",", "z", "[UNK]", ".", "[SEP]"]
    assert example.special_mask == [[1, 0, 0, 0, 0, 0, 0, 1]]


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
