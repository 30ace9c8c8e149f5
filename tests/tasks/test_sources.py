"""Where rows come from: folders with mistakes in them, hidden labels, and the hub's arguments."""

from __future__ import annotations

import json
import shutil

import pytest

from isotrain.tasks.rte import RTE
from isotrain.tasks.sources import HubSource, LocalSource
from isotrain.tasks.stsb import STSB
from isotrain.tasks.wic import WiC

TASKS = {"rte": RTE, "wic": WiC, "stsb": STSB}


@pytest.fixture
def root(data_dir, tmp_path):
    """A copy of the fixture data to break."""
    return shutil.copytree(data_dir, tmp_path / "data")


def edit(path, number, text):
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", TASKS)
def test_a_missing_folder_names_the_ways_out(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        TASKS[name]().load(LocalSource(str(tmp_path)))
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert "ISOTRAIN_DATA_DIR" in message
    assert "source=demo" in message


@pytest.mark.parametrize(
    ("line", "what"), [('{"sentence1": ', "not JSON"), ("[1, 2]", "one JSON object")]
)
def test_a_malformed_line_is_named(root, line, what):
    edit(root / "rte" / "dev.jsonl", 7, line)
    with pytest.raises(ValueError, match=rf"rte/dev\.jsonl:7: .*{what}"):
        RTE().load(LocalSource(str(root)))


def test_blank_lines_are_no_rows_but_count_as_lines(root):
    path = root / "rte" / "dev.jsonl"
    edit(path, 3, "")
    assert len(RTE().load(LocalSource(str(root)))["dev"]) == 31
    edit(path, 5, "{")
    with pytest.raises(ValueError, match=r"dev\.jsonl:5:"):
        RTE().load(LocalSource(str(root)))


@pytest.mark.parametrize("name", TASKS)
def test_every_field_is_asked_for(root, name):
    task = TASKS[name]()
    path = root / name / "train.jsonl"
    good = json.loads(path.read_text().splitlines()[3])
    assert len(task.data_set.fields) >= 3
    for field in task.data_set.fields:
        for bad in ({k: v for k, v in good.items() if k != field}, {**good, field: None}):
            edit(path, 4, json.dumps(bad))
            with pytest.raises(ValueError, match=rf"{name}/train row 3 lacks {field};"):
                task.load(LocalSource(str(root)))
    edit(path, 4, json.dumps(good))
    assert len(task.load(LocalSource(str(root)))["train"]) == 96


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("how", ["empty", "absent"])
def test_training_and_dev_must_have_rows(root, split, how):
    path = root / "stsb" / f"{split}.jsonl"
    path.unlink() if how == "absent" else path.write_text("")
    with pytest.raises(ValueError, match=f"stsb/{split} has no rows in .*stsb"):
        STSB().load(LocalSource(str(root)))


def test_test_may_be_absent(root):
    (root / "wic" / "test.jsonl").unlink()
    assert WiC().load(LocalSource(str(root)))["test"] == []


@pytest.mark.parametrize(
    ("name", "field", "hidden"), [("rte", "label", -1), ("wic", "label", -1), ("stsb", "score", -1)]
)
def test_hidden_test_labels_are_dropped(root, name, field, hidden):
    path = root / name / "test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = {"rte": 1, "wic": True, "stsb": 2.5}[name]
    for i, row in enumerate(rows):
        row[field] = kept if i % 4 == 0 else hidden
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = TASKS[name]().load(LocalSource(str(root)))["test"]
    assert found == rows[::4]


def test_labels_and_scores(root, tokenizer):
    for name, expected in (("rte", {0, 1}), ("wic", {0, 1})):
        task = TASKS[name]()
        examples = task.encode(task.load(LocalSource(str(root)))["dev"], tokenizer)
        assert {e.label for e in examples} == expected
        assert all(type(e.label) is int for e in examples)
    edit(
        root / "stsb" / "dev.jsonl",
        1,
        json.dumps({"sentence1": "q", "sentence2": "z", "score": 5}),
    )
    task = STSB()
    examples = task.encode(task.load(LocalSource(str(root)))["dev"], tokenizer)
    assert examples[0].label == 1.0
    assert all(0.0 <= e.label <= 1.0 and type(e.label) is float for e in examples)


def test_the_record_of_a_folder(root):
    assert LocalSource(str(root)).revision_of(RTE.data_set) == str(root / "rte")


HUB = {
    "rte": ("nyu-mll/glue", "rte", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"),
    "wic": ("aps/super_glue", "wic", "3de24cf8022e94f4ee4b9d55a6f539891524d646"),
    "stsb": ("mteb/stsbenchmark-sts", None, "b0fddb56ed78048fa8b90373c8a3cfc37b684831"),
}


@pytest.mark.parametrize("name", TASKS)
def test_what_the_hub_is_asked_for(monkeypatch, data_dir, name):
    import datasets

    asked = []

    def load_dataset(path, config=None, **options):
        asked.append((path, config, options))
        split = {"train": "train", "validation": "dev", "test": "test"}[options["split"]]
        lines = (data_dir / name / f"{split}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = TASKS[name]()
    rows = task.load(HubSource())
    hub_id, config, revision = HUB[name]
    assert asked == [
        (hub_id, config, {"split": split, "revision": revision})
        for split in ("train", "validation", "test")
    ]
    assert rows == task.load(LocalSource(str(data_dir)))
    assert HubSource().revision_of(task.data_set) == f"{hub_id}@{revision}"


def test_revisions_are_whole_commits():
    for task in TASKS.values():
        revision = task.data_set.hub_revision
        assert len(revision) == 40
        int(revision, 16)
