"""SNLI: its fields as they are downloaded, and rows without gold left out of every split."""

import json

import pytest

from isotrain.tasks.data.sources import LocalSource
from tests.parts import SNLI

SPLITS = ("train", "dev", "test")


def write(folder, split_rows, name="{}.jsonl"):
    folder.mkdir(parents=True)
    for split, rows in split_rows.items():
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / name.format(split)).write_text("".join(lines), encoding="utf-8")
    return folder


def row(label, premise="p", **more):
    return {"premise": premise, "hypothesis": "h", "label": label, "label_text": "x", **more}


def labels(rows):
    return {split: [(r["sentence1"], r["label"]) for r in found] for split, found in rows.items()}


@pytest.mark.parametrize("mark", [-1, None, "-", "-1"])
def test_rows_without_gold_are_left_out_and_counted(tmp_path, mark):
    without = [row(mark, "x")]
    found = {
        "train": [*without, row(0, "a"), row(2, "b"), *without],
        "dev": [row(1, "c"), *without],
        "test": without,
    }
    folder = write(tmp_path / "snli", found)
    task = SNLI()
    rows = task.load(LocalSource(str(tmp_path)))
    assert labels(rows) == {"train": [("a", 0), ("b", 2)], "dev": [("c", 1)], "test": []}
    assert rows["train"][0]["at"] == f"{folder / 'train.jsonl'}:2"
    assert task.left_out == {"train: no gold": 2, "dev: no gold": 1, "test: no gold": 1}
    task.load(LocalSource(str(tmp_path)))
    assert task.left_out["train: no gold"] == 2


def test_the_public_download_is_read_as_it_is(tmp_path):
    def published(label):
        parse = {"sentence1_parse": "(ROOT)", "annotator_labels": [label], "pairID": "1"}
        return {"gold_label": label, "sentence1": "p", "sentence2": "h", **parse}

    found = [published(label) for label in ("neutral", "contradiction", "-", "entailment")]
    write(tmp_path / "snli_1.0", dict.fromkeys(SPLITS, found), "snli_1.0_{}.jsonl")
    task = SNLI()
    rows = task.load(LocalSource(str(tmp_path)))
    assert labels(rows) == {key: [("p", 1), ("p", 2), ("p", 0)] for key in SPLITS}
    assert task.left_out == {f"{split}: no gold": 1 for split in SPLITS}


def test_the_layout_of_glue_is_read(tmp_path):
    folder = tmp_path / "SNLI"
    folder.mkdir()
    for split in SPLITS:
        (folder / f"{split}.tsv").write_text(
            "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tp\th\tneutral\tentailment\n"
        )
    rows = SNLI().load(LocalSource(str(tmp_path)))
    assert labels(rows) == {key: [("p", 0)] for key in SPLITS}
