"""Data of one's own and of the hub: which file is which split, and what is drawn from train."""

import csv
import os
import shutil
from collections import Counter
from itertools import chain

import datasets
import huggingface_hub
import pytest

from isotrain.tasks.classification import Classification
from isotrain.tasks.data.sources import HubSource, PathSource, _of_splits, commit_of
from isotrain.tasks.regression import Regression

SPLITS = ("train", "dev", "test")
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


def rows(n, start=0):
    return [{"text": f"text {i}", "label": "abc"[i % 10 % 3]} for i in range(start, start + n)]


def write(file, found):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, found[0])
        writer.writeheader()
        writer.writerows(found)
    return file


def texts(splits):
    return {split: [row["text"] for row in found] for split, found in splits.items()}


def sizes(source, task=None):
    return [len(found) for found in (task or Classification()).load(source).values()]


def test_one_file_is_drawn_into_stated_shares_of_every_class(tmp_path):
    file = write(tmp_path / "mine.csv", rows(1000))
    source, task = PathSource(str(file)), Classification()
    splits = task.load(source)
    assert sizes(source) == [800, 100, 100]
    assert sorted(chain.from_iterable(texts(splits).values())) == sorted(
        row["text"] for row in rows(1000)
    )
    assert task.data_set.classes == ("a", "b", "c")
    for found, share in zip(splits.values(), (0.8, 0.1, 0.1), strict=True):
        counts = Counter(row["label"] for row in found)
        assert counts == {0: 400 * share, 1: 300 * share, 2: 300 * share}
    assert source.split_note.startswith(
        "800 train, 100 dev, 100 test of 1,000 rows of mine.csv (sha"
    )
    assert "data.split=[0.8, 0.1, 0.1] and data.split_seed=0" in source.split_note
    assert texts(Classification().load(PathSource(str(file)))) == texts(splits)
    assert texts(Classification().load(PathSource(str(file), split_seed=1))) != texts(splits)
    assert sizes(PathSource(str(file), [0.5, 0.5, 0.0])) == [500, 500, 0]


def test_scores_are_drawn_too_and_a_draw_is_never_empty(tmp_path):
    found = [{"text": f"t{i}", "score": f"{i}.5"} for i in range(5)]
    source = PathSource(str(write(tmp_path / "mine.csv", found)))
    assert sizes(source, Regression()) == [3, 1, 1]


def test_the_rare_class_stays_in_train(tmp_path):
    found = [*rows(50), {"text": "x", "label": "rare"}]
    task = Classification()
    splits = task.load(PathSource(str(write(tmp_path / "mine.csv", found))))
    assert task.data_set.classes == ("a", "b", "c", "rare")
    assert [Counter(row["label"] for row in of)[3] for of in splits.values()] == [1, 0, 0]


FOLDERS = {
    "plain": (("train", "dev", "test"), [40, 20, 30]),
    "validation": (("train", "validation", "test"), [40, 20, 30]),
    "prefixes": (("reviews_train", "reviews_valid", "reviews_test"), [40, 20, 30]),
    "capitals": (("Train", "Val", "TEST"), [40, 20, 30]),
    "no test": (("train", "dev"), [40, 20, 0]),
    "no dev": (("train", None, "test"), [36, 4, 30]),
    "train alone": (("train",), [32, 4, 4]),
    "any name alone": (("reviews",), [32, 4, 4]),
    "parts of the hub": (("train-00000-of-00001", "validation-0", "test-0"), [40, 20, 30]),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_has_a_file_for_each_split(tmp_path, case):
    names, expected = FOLDERS[case]
    for name, n in zip(names, (40, 20, 30), strict=False):
        if name:
            write(tmp_path / f"{name}.csv", rows(n, start=n * 100))
    (tmp_path / "README.md").write_text("no data")
    (tmp_path / "load.py").write_text("raise SystemExit('it was run')")
    source = PathSource(str(tmp_path))
    splits = Classification().load(source)
    assert [len(found) for found in splits.values()] == expected
    assert bool(source.split_note) == (case in ("no dev", "train alone", "any name alone"))
    if case == "no dev":
        assert set(texts(splits)["test"]) == {row["text"] for row in rows(30, 3000)}


def test_of_mnli_the_matched_examples_are_dev():
    names = ["train", "validation_matched", "validation_mismatched", "test_matched"]
    assert _of_splits([*names, "test_mismatched"], "mnli") == {
        **{"train": "train", "dev": "validation_matched", "test": "test_matched"}
    }


def test_scores_are_drawn_without_regard_to_their_values(tmp_path):
    """Of classes those in the first rows would be drawn alike; scores are no classes."""
    found = [{"text": f"t{i}", "score": f"{i // 10}"} for i in range(100)]
    splits = Regression().load(PathSource(str(write(tmp_path / "mine.csv", found))))
    counts = Counter(row["score"] for row in splits["dev"])
    assert len(splits["dev"]) == 10
    assert set(counts.values()) != {1}


def test_texts_that_the_draw_leaves_on_both_sides_are_counted(tmp_path):
    found = [row for row in rows(50) for _ in range(2)]
    source = PathSource(str(write(tmp_path / "mine.csv", found)))
    splits = texts(Classification().load(source))
    n = sum(text in splits["train"] for split in ("dev", "test") for text in splits[split])
    assert n > 0
    assert source.split_note.endswith(f"; {n} of those held out have the same text as one of train")


def test_shards_are_one_part(tmp_path):
    for k in range(2):
        write(tmp_path / f"train-0000{k}-of-00002.csv", rows(20, 20 * k))
    write(tmp_path / "dev.csv", rows(10, 100))
    assert sizes(PathSource(str(tmp_path))) == [40, 10, 0]
    (tmp_path / "train-00000-of-00002.csv").unlink()
    with pytest.raises(ValueError, match="only 1 of these files are there"):
        sizes(PathSource(str(tmp_path)))


def test_within_a_block_a_file_is_read_once(tmp_path, monkeypatch):
    from isotrain.tasks.data import sources

    read, read_rows = [], sources.read_rows
    monkeypatch.setattr(sources, "read_rows", lambda file: read.append(file) or read_rows(file))
    source = PathSource(str(write(tmp_path / "mine.csv", rows(100))))
    with source.reading():
        splits = Classification().load(source)
    assert len(read) == 1
    assert texts(splits) == texts(Classification().load(source))
    assert len(read) > 1


def test_dev_and_test_have_the_same_classes_on_average(tmp_path):
    found = [{"text": f"text {i}", "label": f"c{i % 20}"} for i in range(100)]
    file = write(tmp_path / "mine.csv", found)
    of_dev = Counter(
        row["label"]
        for seed in range(10)
        for row in Classification().load(PathSource(str(file), split_seed=seed))["dev"]
    )
    assert len(of_dev) == 20


def test_what_is_not_clear_or_not_there_is_reported(tmp_path):
    for names in (["train_val", "test"], ["train", "dev_test"]):
        for name in names:
            write(tmp_path / names[0] / f"{name}.csv", rows(9))
        with pytest.raises(ValueError, match=r"_\w+\.csv has the names of two splits; name it"):
            sizes(PathSource(str(tmp_path / names[0])))
    write(tmp_path / "extra" / "train.csv", rows(9))
    write(tmp_path / "extra" / "train_extra.csv", rows(9))
    with pytest.raises(ValueError, match=r"train\.csv, train_extra\.csv are all of train"):
        sizes(PathSource(str(tmp_path / "extra")))
    folder = tmp_path / "mine"
    write(folder / "train.csv", rows(9))
    write(folder / "train.tsv", rows(9))
    with pytest.raises(ValueError, match=r"mine: train\.csv, train\.tsv are all of train; leave"):
        PathSource(str(folder)).revision_of(Classification().data_set)
    with pytest.raises(ValueError, match=r"train_r1, train_r2 are all of train; give data\.path"):
        _of_splits(["train_r1", "train_r2", "dev_r1"], "anli")
    with pytest.raises(ValueError, match=r"mime is not there; did you mean mine\?"):
        sizes(PathSource(str(tmp_path / "mime")))
    (folder / "train.tsv").rename(folder / "notes.tsv")
    (folder / "train.csv").rename(folder / "more.csv")
    message = (
        r"has no part of train or dev; it has more\.csv, notes\.tsv, .*train \(train\), dev \(dev"
    )
    with pytest.raises(ValueError, match=message):
        sizes(PathSource(str(folder)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").touch()
    with pytest.raises(ValueError, match=r"has no file of \.csv .*; it has a\.txt"):
        sizes(PathSource(str(tmp_path / "empty")))
    for shares in ([0.8, 0.2], [0.8, 0.1, 0.2], [1.0, 0.0, 0.0], [0.5, 0.6, -0.1]):
        with pytest.raises(ValueError, match=r"data\.split must be the shares of train, dev and"):
            PathSource(str(tmp_path), shares)


def test_the_revision_is_of_the_bytes_and_nothing_is_cached(tmp_path):
    file = write(tmp_path / "mine.csv", rows(50))
    stat, source, data_set = file.stat(), PathSource(str(file)), Classification().data_set
    before = source.revision_of(data_set)
    shutil.copytree(tmp_path, tmp_path / "else" / "where")
    assert PathSource(str(tmp_path / "else" / "where" / "mine.csv")).revision_of(data_set) == before
    file.write_text(file.read_text().replace("text 7", "text x"))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_mtime_ns == stat.st_mtime_ns
    assert source.revision_of(data_set) != before
    assert "text x" in [*chain.from_iterable(texts(Classification().load(source)).values())]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else", "mine.csv"]


@pytest.mark.parametrize("several", [True, False])
def test_a_saved_data_set_is_read(tmp_path, several):
    found = {"train": rows(40), "validation": rows(20, 4000), "test": rows(30, 5000)}
    made = {name: datasets.Dataset.from_list(own) for name, own in found.items()}
    one = datasets.DatasetDict(made) if several else made["train"]
    one.save_to_disk(tmp_path / "saved")
    source = PathSource(str(tmp_path / "saved"))
    splits = Classification().load(source)
    assert [len(own) for own in splits.values()] == ([40, 20, 30] if several else [32, 4, 4])
    assert "saved train row " in splits["train"][0]["at"]
    revision = source.revision_of(Classification().data_set)
    assert revision.startswith("saved (sha256 ")
    next((tmp_path / "saved").rglob("*.arrow")).with_name("cache-0a.arrow").write_bytes(b"x")
    assert PathSource(str(tmp_path / "saved")).revision_of(Classification().data_set) == revision


# The hub, which is not asked here


@pytest.fixture
def hub(monkeypatch):
    """`hub(parts)`: what `load_dataset` gives, and the list of what is asked for."""
    asked = []
    commit_of.cache_clear()

    def prepare(parts):
        def load_dataset(*where, **options):
            asked.append((*where, options))
            return {name: list(found) for name, found in parts.items()}

        class Api:
            def dataset_info(self, hub_id, revision=None):
                asked.append((hub_id, revision))
                return type("Info", (), {"sha": "c" * 40})

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        monkeypatch.setattr(huggingface_hub, "HfApi", Api)
        return asked

    yield prepare
    commit_of.cache_clear()


def test_any_data_set_of_the_hub_at_its_newest_commit(hub):
    asked = hub({"train": rows(40), "test": rows(30, 3000), "unsupervised": rows(9)})
    source = HubSource(hub="stanfordnlp/imdb", name="plain_text")
    task = Classification()
    assert [len(found) for found in task.load(source).values()] == [36, 4, 30]
    assert source.revision_of(task.data_set) == f"stanfordnlp/imdb@{'c' * 40}"
    assert asked[0] == ("stanfordnlp/imdb", None)
    assert asked.count(asked[0]) == 1
    assert set(map(str, asked[1:])) == {
        str(("stanfordnlp/imdb", "plain_text", {"revision": "c" * 40}))
    }


def test_a_commit_is_not_looked_up(hub):
    asked = hub({"train": rows(40), "validation": rows(20)})
    source = HubSource(hub="glue", revision="a" * 40)
    assert sizes(source) == [40, 20, 0]
    assert {where[-1]["revision"] for where in asked} == {"a" * 40}
