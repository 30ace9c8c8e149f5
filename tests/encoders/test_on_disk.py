"""What is on disk: said exactly where loading without the hub works."""

import shutil

import huggingface_hub.constants
import pytest

from isotrain.encoders import on_disk
from isotrain.encoders.huggingface import EncoderUnavailableError, load_encoder
from isotrain.encoders.on_disk import is_on_disk, packaged_folder
from isotrain.training.revision import revision

NAME, COMMIT = "someone/some-model", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def snapshot(save_family, tmp_path, monkeypatch):
    """The files of a downloaded model in a hub cache of its own; main is that commit."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--someone--some-model"
    folder = shutil.copytree(save_family("bert"), model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    return folder


@pytest.mark.parametrize("revision", [COMMIT, None])
def test_a_downloaded_model(snapshot, revision):
    assert is_on_disk(NAME, revision)
    assert load_encoder(NAME, revision).width == 16


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_file_that_is_not_there(snapshot, file):
    (snapshot / file).unlink()
    assert not is_on_disk(NAME, COMMIT)
    with pytest.raises((EncoderUnavailableError, ValueError)):
        load_encoder(NAME, COMMIT)


def test_another_revision_or_name(snapshot):
    assert not is_on_disk(NAME, COMMIT[::-1])
    assert not is_on_disk("someone/another-model", COMMIT)


def test_weights_of_the_older_format(snapshot):
    shutil.move(snapshot / "model.safetensors", snapshot / "pytorch_model.bin")
    assert is_on_disk(NAME, COMMIT)


def test_a_folder(save_family, tmp_path):
    assert is_on_disk(str(save_family("gpt2")))
    assert not is_on_disk(str(tmp_path))
    assert not is_on_disk(str(tmp_path / "none"))


@pytest.mark.parametrize("name", ["", "a b", "../x", "a/b/c", "--"])
def test_what_is_no_name_is_not_on_disk(name):
    assert not is_on_disk(name)


def test_the_folder_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "made_up_minilm"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(on_disk, "PACKAGE", "made_up_minilm")
    assert packaged_folder() == package / "model"
    monkeypatch.setattr(on_disk, "PACKAGE", "no_such_package_here")
    assert packaged_folder() is None


def test_the_weights_of_any_folder_are_part_of_what_a_run_reads(composed, tmp_path, monkeypatch):
    """Also of a relative one that a name of the hub might be."""
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    cfg = composed("source=demo", "encoder=huggingface", "encoder.name=models/mine")
    found = []
    for text in ("one", "two"):
        (tmp_path / "models" / "mine" / "model.safetensors").write_text(text)
        found.append(revision(cfg))
    assert "; encoder " in found[0]
    assert found[0] != found[1]
