"""What a source says of data sets that it does not have."""

import huggingface_hub.constants
import pytest

from isotrain.config.compose import compose_run
from isotrain.config.parts import make
from tests.parts import OF_FIXTURES

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """A hub cache without anything in it."""
    home = tmp_path / "hub home"
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
    return home


def message(*overrides):
    cfg = compose_run(["encoder=tiny", "source=demo", *overrides])
    source, task = make(cfg.source), make(cfg.task)
    return [why for one in task.data_sets if (why := source.missing(one))]


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize("task", OF_FIXTURES)
def test_nothing_is_missing_for_parts_that_need_no_files(monkeypatch, task):
    for name in OFFLINE:
        monkeypatch.setenv(name, "1")
    assert message(f"task={task}") == []


@pytest.mark.parametrize(
    ("task", "folders"),
    [
        ("rte", "rte RTE"),
        ("stsb", "stsb STS-B"),
        ("wic", "wic WiC"),
        ("snli", "snli snli_1.0 SNLI"),
    ],
)
def test_a_folder_without_the_set_is_reported_with_every_place_looked_at(tmp_path, task, folders):
    (error,) = message(f"task={task}", "source=local", f"source.root={tmp_path}")
    for name in folders.split():
        assert str(tmp_path / name) in error
    assert f"{task}/train.jsonl and {task}/dev.jsonl" in error
    for way in ("ISOTRAIN_DATA_DIR", "source.root", "source=hub", "source=demo"):
        assert way in error


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        (["rte/train.jsonl", "rte/dev.jsonl"], []),
        (["rte/train.jsonl", "rte/dev.jsonl", "rte/test.jsonl"], []),
        (["RTE/train.jsonl", "RTE/val.jsonl"], []),
        (["RTE/train.tsv", "RTE/dev.tsv"], []),
        (["rte/train.jsonl", "rte/dev.tsv"], []),
        (["rte/train.jsonl"], ["dev"]),
        (["rte/dev.jsonl", "rte/test.jsonl"], ["train"]),
        (["rte/test.jsonl"], ["train", "dev"]),
        (["rte/train.json", "rte/dev.jsonl"], ["train"]),
        (["rte/train.jsonl/x", "rte/dev.jsonl"], ["train"]),  # a folder of that name
    ],
)
def test_which_files_make_a_set(tmp_path, names, absent):
    write(tmp_path, *names)
    found = message("task=rte", "source=local", f"source.root={tmp_path}")
    assert len(found) == bool(absent)
    for split in absent:
        assert f"{split}.jsonl" in found[0]
    for split in {"train", "dev", "test"} - set(absent):
        assert not found or f"/{split}.tsv" not in found[0]


def test_each_set_of_a_task_is_looked_for(tmp_path):
    choice = ("task=text", "source=local", f"source.root={tmp_path}")
    of_text, of_stsb = message(*choice)
    assert "wikitext-2/train.txt and wikitext-2/dev.txt" in of_text
    assert f"{tmp_path / 'stsb'}, {tmp_path / 'STS-B'};" in of_stsb
    write(tmp_path, "wikitext-2/wiki.train.tokens", "wikitext-2/wiki.valid.tokens")
    assert message(*choice) == [of_stsb]
    write(tmp_path, "stsb/train.jsonl", "stsb/dev.jsonl")
    assert message(*choice) == []
