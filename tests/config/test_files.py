"""What a source says of data sets that it does not have."""

import huggingface_hub.constants
import pytest

from isotrain.config.compose import compose_run
from isotrain.config.parts import make


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


def test_each_set_of_a_task_is_looked_for(tmp_path):
    choice = ("task=text", "source=local", f"source.root={tmp_path}")
    of_text, of_stsb = message(*choice)
    assert "wikitext-2/train.txt and wikitext-2/dev.txt" in of_text
    assert f"{tmp_path / 'stsb'}, {tmp_path / 'STS-B'};" in of_stsb
    write(tmp_path, "wikitext-2/wiki.train.tokens", "wikitext-2/wiki.valid.tokens")
    assert message(*choice) == [of_stsb]
    write(tmp_path, "stsb/train.jsonl", "stsb/dev.jsonl")
    assert message(*choice) == []
