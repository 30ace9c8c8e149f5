"""Data sets of analyses: each sentence once, pairs with gold, and what is measured of them."""

import json

import pytest

from isotrain.analysis.data_sets import (
    PLACES,
    STS,
    TEXTS,
    present,
    read_corpus,
    readable_sets,
    sts_pairs,
)
from isotrain.analysis.offline_isotropy.analysis import OfflineIsotropy
from isotrain.tasks.data.sources import LocalSource, load_split
from tests.analysis.offline_isotropy.offline_rows import (
    SMALL,
    pair_rows,
    subject_on,
    write,
    write_sets,
)
from tests.analysis.runs import Rows, rows_of, tiny


@pytest.fixture(scope="module")
def source(data_dir):
    return LocalSource(str(data_dir))


def test_a_premise_of_snli_counts_once(source):
    """Each stands in three rows: one for each class."""
    rows = load_split(source, TEXTS["snli"].data_set, "train")
    premises = [row["sentence1"] for row in rows]
    assert len(premises) == 3 * len(set(premises))
    found = read_corpus(source, "snli", ["train"], "[UNK]")
    assert len(found) == len(set(found)) < 2 * len(rows)
    assert set(found) == set(premises) | {row["sentence2"] for row in rows}


def test_a_sentence_of_two_splits_counts_once_where_it_first_stood(source):
    both = read_corpus(source, "rte", ["dev", "train"], "[UNK]")
    dev = read_corpus(source, "rte", ["dev"], "[UNK]")
    train = read_corpus(source, "rte", ["train"], "[UNK]")
    assert both[: len(dev)] == dev
    assert both[len(dev) :] == [text for text in train if text not in set(dev)]
    assert set(dev) & set(train)  # or this tells nothing


def test_paragraphs_of_wikitext_become_sentences_as_they_are_written():
    lines = [" = Heading = \n", " ", " The <unk> barks . Then , in 1990 , it ran @-@ away . "]
    found = read_corpus(Rows(train=rows_of(lines)), "wikitext-2", ["train"], "[UNK]")
    assert found == ["The [UNK] barks.", "Then, in 1990, it ran-away."]


def test_available_sets_are_those_of_the_source(sets):
    names, absent, problems = present(LocalSource(str(sets)), "available", PLACES)
    assert problems == []
    assert names == ["sts12", "stsb", "stsb_dev", "sst2"]
    assert list(absent) == ["sts13", "sts14", "sts15", "sts16", "sickr"]
    assert "sts14" in absent["sts14"]
    assert OfflineIsotropy(**SMALL).missing(LocalSource(str(sets))) == []
    (problem,) = OfflineIsotropy(sets=["stsb", "sts14"]).missing(LocalSource(str(sets)))
    assert "sts14" in problem


def test_rows_of_a_set(sets):
    pairs = sts_pairs(LocalSource(str(sets)), STS["stsb"], "test")
    rows = [json.loads(line) for line in (sets / "stsb" / "test.jsonl").read_text().splitlines()]
    for row, first, second in zip(rows, pairs.first_P, pairs.second_P, strict=True):
        assert pairs.sentences[first] == row["sentence1"]
        assert pairs.sentences[second] == row["sentence2"]
    assert len(set(pairs.sentences)) == len(pairs.sentences)
    assert pairs.gold_P.tolist() == [row["score"] for row in rows]


def test_rows_without_gold(tmp_path):
    rows = pair_rows(0, 12, file=lambda i: "images")
    rows[3] |= {"score": None}
    for split in ("train", "dev", "test"):
        write(tmp_path, "stsb", split, rows if split == "test" else pair_rows(1, 3))
    pairs = sts_pairs(LocalSource(str(tmp_path)), STS["stsb"], "test")
    assert len(pairs.gold_P) == 11
    write(tmp_path, "stsb", "test", [row | {"score": None} for row in rows])
    assert not len(sts_pairs(LocalSource(str(tmp_path)), STS["stsb"], "test").gold_P)


@pytest.mark.parametrize("gold", ["hidden", "no file"])
def test_an_available_set_without_gold_is_left_out_and_named(tmp_path, gold):
    root = write_sets(tmp_path)
    write(root, "stsb", "test", [row | {"score": None} for row in pair_rows(2, 30)])
    if gold == "no file":
        (root / "stsb" / "test.jsonl").unlink()
    source = LocalSource(str(root))
    pairs, absent = readable_sets(source, "available")
    assert [*pairs] == ["sts12", "stsb_dev"]
    assert "no row with gold" in absent["stsb"]
    assert [*readable_sets(source, ["stsb", "sts12"])[0]] == ["sts12"]
    analysis = OfflineIsotropy(**SMALL, transforms=["none"], layers=[2], n_iterations=1)
    parts = [*analysis.parts(subject_on(tiny(), root, tmp_path / "rows"))]
    assert [part.name for part in parts] == [
        "sets",
        *(f"{name}-layer_02" for name in (*pairs, "sst2")),
    ]
    assert [r["set"] for r in parts[0].measure().records][-1] == "stsb"
    assert parts[1].measure().records
