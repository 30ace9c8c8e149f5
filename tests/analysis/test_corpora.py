"""Corpora: each sentence once, of the splits that were asked for; no text is lost."""

from __future__ import annotations

import pytest

from isotrain.analysis.corpora import TEXTS, check_splits, data_set_of, missing, read_corpus
from isotrain.tasks.data.demo_generator import DemoSource
from isotrain.tasks.data.sources import LocalSource, load_split


@pytest.fixture(scope="module")
def source(data_dir):
    return LocalSource(str(data_dir))


def test_a_premise_of_snli_counts_once(source):
    """Each stands in three rows: one for each class."""
    rows = load_split(source, data_set_of("snli"), "train")
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


def test_spaces_around_a_sentence_make_no_other_one(sentences_source):
    twice = sentences_source([" A dog. ", "A dog.", "  ", "A cat."])
    assert read_corpus(twice, "rte", ["train"], "[UNK]") == ["A dog.", "A cat."]


def test_paragraphs_of_wikitext_become_sentences_as_they_are_written(sentences_source):
    lines = [" = Heading = \n", " ", " The <unk> barks . Then , in 1990 , it ran @-@ away . "]
    found = read_corpus(sentences_source(lines), "wikitext-2", ["train"], "[UNK]")
    assert found == ["The [UNK] barks.", "Then, in 1990, it ran-away."]


@pytest.mark.parametrize("corpus", sorted(TEXTS))
def test_every_corpus_names_fields_that_its_data_set_has(corpus):
    assert set(TEXTS[corpus].fields) <= set(data_set_of(corpus).fields)


def test_no_such_corpus_or_split():
    with pytest.raises(ValueError, match="there is no corpus snil; there are snli, rte, "):
        data_set_of("snil")
    assert check_splits(["dev", "train"]) == ("dev", "train")
    for wrong in (["trian"], [], ["dev", "dev"]):
        with pytest.raises(ValueError, match="must be some of train, dev, test, each once, got"):
            check_splits(wrong)


def test_a_split_without_a_sentence(sentences_source):
    with pytest.raises(ValueError, match="sts12 has no sentence in dev"):
        read_corpus(sentences_source(["A dog."]), "sts12", ["dev"], "[UNK]")


def test_what_a_source_lacks(source, tmp_path):
    assert missing(DemoSource(), [data_set_of("rte")]) == []
    assert "source=demo has" in missing(DemoSource(), [data_set_of("sst2")])[0]
    empty = LocalSource(str(tmp_path))
    assert len(missing(empty, [data_set_of("rte"), data_set_of("snli")])) == 2
