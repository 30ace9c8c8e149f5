"""Data, weights and packages that are not there are told before anything is loaded."""

import sys

import huggingface_hub.constants
import pytest

from isotrain.config.compose import compose_run
from isotrain.training import requirements as files
from isotrain.training.requirements import data_mistakes, file_mistakes
from tests.parts import TASKS

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """A hub cache without anything in it."""
    home = tmp_path / "hub home"
    monkeypatch.setenv("HF_HOME", str(home))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
    return home


def told(*overrides):
    cfg = compose_run(["encoder=tiny", "source=demo", *overrides])
    return [*data_mistakes(cfg), *file_mistakes(cfg)]


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize("task", TASKS)
def test_nothing_is_missing_for_parts_that_need_no_files(monkeypatch, task):
    for name in OFFLINE:
        monkeypatch.setenv(name, "1")
    assert told(f"task={task}") == []


@pytest.mark.parametrize(
    ("task", "folders"),
    [
        ("rte", "rte RTE"),
        ("stsb", "stsb STS-B"),
        ("wic", "wic WiC"),
        ("snli", "snli snli_1.0 SNLI"),
    ],
)
def test_a_folder_without_the_set_is_told_with_every_place_looked_at(tmp_path, task, folders):
    (mistake,) = told(f"task={task}", "source=local", f"source.root={tmp_path}")
    for name in folders.split():
        assert str(tmp_path / name) in mistake
    assert f"{task}/train.jsonl and {task}/dev.jsonl" in mistake
    for way in ("ISOTRAIN_DATA_DIR", "source.root", "source=hub", "source=demo"):
        assert way in mistake


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
    found = told("task=rte", "source=local", f"source.root={tmp_path}")
    assert len(found) == bool(absent)
    for split in absent:
        assert f"{split}.jsonl" in found[0]
    for split in {"train", "dev", "test"} - set(absent):
        assert not found or f"/{split}.tsv" not in found[0]


def test_each_set_of_a_task_is_looked_for(tmp_path):
    choice = ("task=text", "source=local", f"source.root={tmp_path}")
    of_text, of_stsb = told(*choice)
    assert "wikitext-2/train.txt and wikitext-2/dev.txt" in of_text
    assert f"{tmp_path / 'stsb'}, {tmp_path / 'STS-B'};" in of_stsb
    write(tmp_path, "wikitext-2/wiki.train.tokens", "wikitext-2/wiki.valid.tokens")
    assert told(*choice) == [of_stsb]
    write(tmp_path, "stsb/train.jsonl", "stsb/dev.jsonl")
    assert told(*choice) == []


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
@pytest.mark.parametrize("value", ["1", "ON", "true", "YES"])
def test_a_hub_set_that_is_not_in_the_cache_is_told_offline(
    monkeypatch, empty_cache, variable, value
):
    assert told("source=hub", "task=rte") == []
    monkeypatch.setenv(variable, value)
    (mistake,) = told("source=hub", "task=rte")
    assert f"nyu-mll/glue is not in {empty_cache / 'datasets'}" in mistake
    for way in ("network access", "ISOTRAIN_DATA_DIR", "source=demo"):
        assert way in mistake
    (empty_cache / "datasets" / "nyu-mll___glue").mkdir(parents=True)
    assert told("source=hub", "task=rte") == []


@pytest.mark.parametrize("value", ["0", "", "off", "FALSE"])
def test_a_variable_that_says_no_is_online(monkeypatch, value):
    for name in OFFLINE:
        monkeypatch.setenv(name, value)
    assert told("source=hub", "encoder=bert_base") == []


@pytest.mark.parametrize("encoder", ["bert_base", "distilbert", "gpt2", "roberta_base"])
@pytest.mark.parametrize("variable", OFFLINE)
def test_an_encoder_that_is_not_on_disk_is_told_offline(monkeypatch, encoder, variable):
    assert told(f"encoder={encoder}") == []
    monkeypatch.setenv(variable, "1")
    (mistake,) = told(f"encoder={encoder}")
    name = compose_run([f"encoder={encoder}", "source=demo"]).encoder.name
    assert mistake.startswith(f"encoder {name} is not on disk")
    for way in ("network access", "encoder.name=/path", "encoder=minilm", "encoder=tiny"):
        assert way in mistake


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_folder_of_an_encoder_is_looked_for_in_any_case(monkeypatch, tmp_path, is_offline):
    if is_offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    choice = ("encoder=huggingface", f"encoder.name={tmp_path}/bert")
    assert told(*choice)[0].startswith(f"encoder.name={tmp_path}/bert is no folder with a config")
    write(tmp_path, "bert/vocab.txt")
    assert len(told(*choice)) == 1
    write(tmp_path, "bert/config.json", "bert/model.safetensors")
    assert told(*choice) == []


def test_packaged_weights_need_no_hub(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(files, "packaged_folder", lambda: tmp_path)
    assert told("encoder=minilm") == []
    monkeypatch.setattr(files, "packaged_folder", lambda: None)
    assert "all-MiniLM-L6-v2 is not on disk" in told("encoder=minilm")[0]


def without(*packages):
    return lambda name: None if name in packages else object()


def test_a_logger_whose_package_is_missing_is_told_with_what_installs_it(monkeypatch):
    monkeypatch.setattr(files, "find_spec", without("tensorboard", "tensorboardX"))
    (mistake,) = told("logger=[wandb,tensorboard]")
    assert mistake.startswith("logger.tensorboard needs the package tensorboard")
    assert "; pip install -e '.[tensorboard]' in the clone of isotrain, or" in mistake
    assert told("logger=[wandb]") == told("logger=[]") == []


def test_the_data_set_of_a_users_task_is_looked_for(allowed, tmp_path):
    module = allowed(
        """
        from isotrain.tasks.data.sources import DataSet
        DATA = DataSet("mine", {"a": str}, "a", "x/y", None, "0")
        class Mine:
            data_set = DATA
            def __init__(self): ...
        """
    )
    cfg = compose_run(["encoder=tiny", "source=local", f"source.root={tmp_path}"])
    cfg.task = {"_target_": f"{module}.Mine"}
    (mistake,) = data_mistakes(cfg)
    assert str(tmp_path / "mine") in mistake


@pytest.mark.parametrize("key", ["encoder.name", "encoder.revision", "encoder._target_"])
def test_a_reference_that_leads_nowhere_raises_nothing(monkeypatch, key):
    """The error of the reference itself, a traceback; the check has the words for it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    told("encoder=huggingface", "encoder.name=some/encoder", f"{key}='${{oc.env:NOT_SET}}'")


OWN_SOURCE = """
    from isotrain.tasks.data.sources import Source

    class Mine(Source):
        def __init__(self, place: str): self.place = place
        def read(self, data_set, split): return []
        def missing(self, data_set): return f"{data_set.name} is not at {self.place}"

    class Other:
        def __init__(self, place: str): ...

    class Broken(Mine):
        def __init__(self, place: str): raise ValueError(place)
"""


def test_a_source_says_itself_what_is_missing(package, monkeypatch):
    module = package(OWN_SOURCE)
    cfg = compose_run(["encoder=tiny", "source=demo", "task=rte"])
    cfg.source = {"_target_": f"{module}.Mine", "place": "home"}
    with pytest.raises(ValueError, match="is not allowed"):
        data_mistakes(cfg)
    assert module not in sys.modules
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    assert data_mistakes(cfg) == ["rte is not at home"]
    cfg.source._target_ = f"{module}.Other"
    (mistake,) = data_mistakes(cfg)
    assert mistake.endswith("Other must inherit from isotrain.tasks.data.sources.Source")
    cfg.source._target_ = f"{module}.Broken"
    assert data_mistakes(cfg) == ["source: home"]
