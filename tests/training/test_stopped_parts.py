"""Parts with a state of their own: a run that is stopped ends as a whole one, bit by bit."""

from __future__ import annotations

import pytest

from tests.stopped_runs import finished, stopped

MUON = ("optimizer=muon", "optimizer.muon_lr=1e-3", "task=rte", "trainer.max_epochs=2")
BI = ("task=rte", "task.form=bi", "pooling=mean")
EVERY_2 = ("checkpoint.every_steps=2", "trainer.log_every_n_steps=1")
ACCUMULATED = "trainer.accumulate_grad_batches=2"
CASES = {  # overrides, and the training batch at which the run is stopped
    "muon in stages": (
        *(*MUON, ACCUMULATED, "checkpoint.every_steps=3", "trainer.gradient_clip_val=0.5"),
        *("freezing=gradual", "freezing.unit=step", "freezing.every=4"),
        *("training.layer_decay=0.7", "training.head_lr_factor=10"),
        11,
    ),
    "muon of LoRA": (*MUON, ACCUMULATED, "checkpoint.every_steps=3", "peft=lora", "peft.r=2", 11),
    "solved head": (
        *("task=wic", "training.solved_head=true", "isotropy=zca", "checkpoint.every_steps=3"),
        *("freezing=head_first", "freezing.share=0.4"),
        4,
    ),
    "anchor": (
        *(*BI, *EVERY_2, "objective=[anchor]", "objective.anchor.centred=true"),
        "training.reinit_blocks=1",
        5,
    ),
    "visreg": ("task=rte", "objective=[visreg]", *EVERY_2, ACCUMULATED, 6),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_ends_as_a_whole_one(composed, small, tmp_path, monkeypatch, case):
    *overrides, at = CASES[case]
    line = (*small, "metric=[]", "cache_dir=null", *overrides)
    *known, state = finished(composed(*line, f"output_dir={tmp_path / 'whole'}"))
    cfg = composed(*line, f"output_dir={tmp_path / 'stopped'}")
    stopped(cfg, monkeypatch, "training_step", at)
    *again, weights = finished(cfg)
    assert again == known
    assert [name for name in state if not state[name].equal(weights[name])] == []
