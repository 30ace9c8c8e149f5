"""`isotrain demo`: both methods, the fallback where MiniLM cannot be had, and its errors."""

import re

import pytest
import torch

from isotrain import cli
from isotrain.commands.demo import demo
from isotrain.encoders import huggingface
from isotrain.runs.record import CannotRunError
from tests.stored_texts import same_text


@pytest.mark.slow
def test_without_the_extra_and_a_hub_the_demo_uses_tiny_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: None)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    sizes = ("data.eval_batch_size=250", "data.n_dev=250", "data.n_test=250")
    short = ("trainer.max_steps=2", "trainer.accelerator=cpu", "monitor.max_rows=64")
    demo([f"output_dir={tmp_path}", *short, *sizes])
    assert torch.get_num_threads() == threads
    text = capsys.readouterr().out
    tables = text.partition("every layer, end of training")[2].partition("training pairs")[0]
    assert max(map(len, tables.splitlines())) <= 100
    for method in ("none", "frozen_zca"):
        (page,) = tmp_path.glob(f"stsb/{method}-*/report.html")
        text = text.replace(page.parent.name, f"{method}-HASH")
    text = re.sub(r"−?\b\d[\d.,]*", "#", text.replace(str(tmp_path), "RUNS"))
    same_text("demo.txt", re.sub(r" +", " ", re.sub("─+", "─", text)))


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
