"""`isotrain doctor` on machines that differ by what the environment says."""

import socket
from pathlib import Path

import pytest
import torch

from isotrain import doctor
from isotrain.cli import main
from isotrain.training import speed
from tests.stored_texts import same_text

KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    """No variable of whoever runs the tests, no GPU, no packages and no network."""
    for name in (
        *("ISOTRAIN_DATA_DIR", "WANDB_API_KEY", "WANDB_MODE", "CUDA_VISIBLE_DEVICES"),
        *("HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "version", lambda name: "VERSION")
    monkeypatch.setattr(doctor.platform, "python_version", lambda: "VERSION")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "packaged_folder", lambda: None)
    monkeypatch.setattr(doctor, "is_on_disk", lambda name, revision: "gpt2" in name)
    monkeypatch.setattr(doctor, "cuda_devices", list)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(speed, "bf16_speedup", lambda: 0.5)

    def reject(*_):
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", reject)


def printed(capsys):
    assert main(["doctor"]) == 0
    return capsys.readouterr().out


def test_a_bare_machine(capsys):
    same_text("doctor_bare.txt", printed(capsys))


def test_a_machine_with_almost_everything(monkeypatch, tmp_path, capsys):
    (tmp_path / "rte").mkdir()
    for name in ("train", "dev"):
        (tmp_path / "rte" / f"{name}.jsonl").touch()
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(doctor, "find_spec", lambda name: name)
    monkeypatch.setattr(doctor, "packaged_folder", lambda: Path("MINILM"))
    monkeypatch.setattr(doctor, "cuda_devices", lambda: ["0", "1"])
    monkeypatch.setattr(torch, "__version__", "VERSION")
    monkeypatch.setattr(speed, "bf16_speedup", lambda: 2.0)
    same_text("doctor_almost.txt", printed(capsys).replace(str(tmp_path), "DATA"))


def test_a_gpu_is_found_and_a_key_of_wandb(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai login user password {KEY}\n")
    (tmp_path / "netrc").chmod(0o600)
    text = printed(capsys)
    assert "ok accelerator       2 CUDA devices\n" in text
    assert "ok logger=[wandb]    online (a key is configured)\n" in text


def test_the_key_and_other_secrets_are_never_printed(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("MY_SERVICE_TOKEN", "very-secret-words")
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(tmp_path / "very-secret-words"))
    text = printed(capsys)
    assert "online (a key is configured)" in text
    for secret in (KEY, "very-secret-words"):
        assert secret not in text
    assert "<redacted>" in text
