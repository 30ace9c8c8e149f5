"""`isotrain demo`: both arms, and the fallback where MiniLM cannot be had."""

from __future__ import annotations

import torch

from isotrain.demo import demo
from isotrain.encoders import minilm


def test_without_the_extra_and_a_hub_the_demo_uses_tiny_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(minilm, "packaged_folder", lambda: None)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    demo(
        [
            f"output_dir={tmp_path}",
            "trainer.max_steps=2",
            "trainer.accelerator=cpu",
            "monitor.max_rows=64",
            "data.eval_batch_size=250",
        ]
    )
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert printed.count("using encoder=tiny") == 1
    for arm in ("none", "cluster_pca"):
        assert f"isotropy={arm}: val/accuracy" in printed
        curves = list(tmp_path.glob(f"wic/{arm}-*/curves.png"))
        assert len(curves) == 1
        assert str(curves[0]) in printed.replace("\n", "")
    for layer in ("layer_00", "layer_01", "layer_02"):
        assert layer in printed
