"""`isotrain demo`: both methods, the fallback where MiniLM cannot be had, and its errors."""

from pathlib import Path

import pytest
import torch

from isotrain import cli
from isotrain.commands.demo import demo
from isotrain.encoders import huggingface
from isotrain.runs.record import CannotRunError


@pytest.mark.slow
def test_without_the_extra_and_a_hub_the_demo_uses_tiny_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: None)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    demo(
        [
            f"output_dir={tmp_path}",
            "trainer.max_steps=2",
            "trainer.accelerator=cpu",
            "monitor.max_rows=64",
            "data.eval_batch_size=250",
            "data.n_dev=250",
            "data.n_test=250",
        ]
    )
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert printed.count("using encoder=tiny") == 1
    for method in ("none", "frozen_zca"):
        assert f"isotropy={method}: val/spearman" in printed
        (folder,) = tmp_path.glob(f"stsb/{method}-*")
        (line,) = (line for line in printed.splitlines() if line.startswith(f"isotropy={method}:"))
        curves = Path(line.partition("; page: ")[2])
        assert curves.parent == folder
        assert curves.suffix in (".html",)
        assert curves.is_file()
    tables = printed.partition("every layer, end of training")[2]
    assert max(map(len, tables.partition("training pairs")[0].splitlines())) <= 100
    for layer in ("layer_00", "layer_01", "layer_02"):
        assert layer in printed


def test_an_encoder_of_the_users_is_looked_for_and_never_replaced(tmp_path):
    missing = f"{tmp_path}/none"
    with pytest.raises(CannotRunError, match="neither on disk nor reachable"):
        demo(["encoder=huggingface", f"encoder.name={missing}", f"output_dir={tmp_path / 'runs'}"])


def test_an_error_is_reported_as_by_train(capsys):
    assert cli.main(["demo", "sede=1"]) == 2
    assert capsys.readouterr().err.endswith("no key sede; did you mean seed?\n")


@pytest.mark.parametrize("override", ["isotropy=clip", "isotropy.stats=batch", "trainer.devices=2"])
def test_what_the_demo_compares_is_fixed(override):
    with pytest.raises(CannotRunError, match=f"{override} is fixed in the demo"):
        demo([override])
