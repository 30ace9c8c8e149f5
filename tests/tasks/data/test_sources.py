"""Where rows come from: folders with errors in them, hidden labels, generated rows, the hub."""

import json
import re
import shutil

import pytest

from isotrain.tasks.data.demo_generator import DemoSource
from isotrain.tasks.data.sources import DataSet, HubSource, LocalSource
from isotrain.tasks.wic import WiC
from tests.parts import RTE, STSB

TASKS = {"rte": RTE, "wic": WiC, "stsb": STSB}


@pytest.fixture
def root(data_dir, tmp_path):
    """A copy of the fixture data to break."""
    return shutil.copytree(data_dir, tmp_path / "data")


def edit(path, number, text):
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def bare(row):
    """The row without where it stood."""
    return {name: value for name, value in row.items() if name != "at"}


@pytest.mark.parametrize(
    ("line", "what"), [('{"sentence1": ', "not a JSON object"), ("[1, 2]", "not a JSON object")]
)
def test_a_malformed_line_is_named(root, line, what):
    edit(root / "rte" / "dev.jsonl", 7, line)
    with pytest.raises(ValueError, match=rf"rte/dev\.jsonl:7: .*{what}"):
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
            with pytest.raises(ValueError, match=rf"{name}/train\.jsonl:4: lacks {field};"):
                task.load(LocalSource(str(root)))
    edit(path, 4, json.dumps(good))
    assert len(task.load(LocalSource(str(root)))["train"]) == 96


@pytest.mark.parametrize("split", ["train", "dev"])
def test_training_and_dev_must_have_rows(root, split):
    path = root / "stsb" / f"{split}.jsonl"
    path.write_text("\n")
    with pytest.raises(ValueError, match=f"stsb/{split} has no rows in .*stsb"):
        STSB().load(LocalSource(str(root)))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"{path}, .*; set") as caught:
        STSB().load(LocalSource(str(root)))
    assert str(caught.value) == LocalSource(str(root)).missing(STSB().data_set)


@pytest.mark.parametrize(("name", "kept"), [("rte", 1), ("wic", True), ("stsb", 2.5)])
def test_hidden_test_labels_are_dropped(root, name, kept):
    path, data_set = root / name / "test.jsonl", TASKS[name]().data_set
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for i, row in enumerate(rows):
        row[data_set.target] = kept if i % 4 == 0 else -1
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = TASKS[name]().load(LocalSource(str(root)))["test"]
    assert [bare(row) for row in found] == [
        {f: row[f] for f in data_set.fields} for row in rows[::4]
    ]
    assert [row["at"] for row in found] == [f"{path}:{n}" for n in range(1, len(rows) + 1, 4)]


def test_the_record_of_a_folder_notices_an_edit(root):
    source = LocalSource(str(root))
    record = source.revision_of(RTE().data_set)
    assert re.fullmatch(r"rte \(sha256 [0-9a-f]{12}\)", record)
    (root / "rte" / "notes.txt").write_text("not read")
    (root / "stsb" / "dev.jsonl").write_text("of another set")
    assert source.revision_of(RTE().data_set) == record
    seen = {record}
    for split in ("train", "dev", "test"):
        path = root / "rte" / f"{split}.jsonl"
        path.write_bytes(path.read_bytes() + b"\n")
        seen.add(source.revision_of(RTE().data_set))
    assert len(seen) == 4


def test_a_score_may_be_a_whole_number_and_no_boolean(root):
    file, line = root / "stsb" / "dev.jsonl", '{"sentence1": "a", "sentence2": "b", "score": %s}'
    edit(file, 2, line % "5")
    row = STSB().load(LocalSource(str(root)))["dev"][1]
    assert (row["score"], type(row["score"])) == (5.0, float)
    edit(file, 2, line % "true")
    with pytest.raises(ValueError, match=r"dev\.jsonl:2: score: must be a number, got True"):
        STSB().load(LocalSource(str(root)))


def test_bytes_that_are_no_text_are_named(root):
    path = root / "wic" / "train.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:-5] + b"\xff", *lines[2:]]))
    with pytest.raises(ValueError, match=r"wic/train\.jsonl: 'utf-8' codec"):
        WiC().load(LocalSource(str(root)))


@pytest.mark.parametrize("name", TASKS)
def test_generated_rows_have_the_same_fields(name):
    task = TASKS[name]()
    rows = task.load(DemoSource(seed=3))["test"]
    assert [row["at"] for row in rows[:2]] == [f"demo-v1-seed3 test row {i}" for i in (0, 1)]
    for row in rows:
        assert {f: type(value) for f, value in bare(row).items()} == dict(task.data_set.fields)


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
        files = {"train": "train", "validation": "dev", "test": "test"}
        texts = {part: data_dir / name / f"{split}.jsonl" for part, split in files.items()}
        return {
            part: list(map(json.loads, file.read_text().splitlines()))
            for part, file in texts.items()
        }

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = TASKS[name]()
    rows = task.load(HubSource())
    hub_id, config, revision = HUB[name]
    assert asked == [(hub_id, config, {"revision": revision})] * 3
    local = task.load(LocalSource(str(data_dir)))
    assert {split: list(map(bare, found)) for split, found in rows.items()} == {
        split: list(map(bare, found)) for split, found in local.items()
    }
    assert [row["at"] for row in rows["dev"][:2]] == [
        f"{hub_id}@{revision} dev row {i}" for i in (0, 1)
    ]
    assert HubSource().revision_of(task.data_set) == f"{hub_id}@{revision}"


def test_private_data_need_no_fields_of_the_hub():
    private = DataSet(name="mine", fields={"text": str}, target="")
    assert "names no data set of the hub; use data.path=" in HubSource().missing(private)
