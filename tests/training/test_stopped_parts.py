"""Parts with a state of their own: a run that is stopped ends as a whole one, bit by bit."""

import json

import pytest

from isotrain.runner import folder_of
from tests.stopped_runs import assert_same_end, fail, finished, stopped, terminate

MUON = ("optimizer=muon", "optimizer.muon_lr=1e-3", "task=rte", "trainer.max_epochs=2")
BI = ("task=rte", "task.form=bi", "pooling=mean")
EVERY_2 = ("checkpoint.every_steps=2", "trainer.log_every_n_steps=1")
ACCUMULATED = "trainer.accumulate_grad_batches=2"
SHARE = "training.objective_weight_as=share_of_task_gradient"
CLUSTERS = (  # 24 steps
    *("task=wic", "isotropy.n_clusters=2", "isotropy.n_components=1"),
    *("metric=[isoscore]", "monitor.max_rows=64", "trainer.max_epochs=2"),
    *("trainer.val_check_interval=5", "trainer.log_every_n_steps=1", "checkpoint.every_steps=4"),
)
EVERY_PATH = (  # of the fast ones
    *("task=wic", "data.batching=random", "freezing=gradual", "freezing.unit=step"),
    *("freezing.every=8", "trainer.max_epochs=2", "trainer.val_check_interval=5"),
    *("checkpoint.every_steps=4", "metric=[isoscore]", "cache_dir=${output_dir}/.cache"),
)
CASES = {  # overrides, and the training batch at which the run is stopped
    "muon in stages": (
        *(*MUON, ACCUMULATED, "checkpoint.every_steps=3", "trainer.gradient_clip_val=0.5"),
        *("freezing=gradual", "freezing.unit=step", "freezing.every=4"),
        *("training.layer_decay=0.7", "training.head_lr_factor=10"),
        11,
    ),
    "LoRA in float64": (
        *("task=wic", "peft=lora", "peft.r=2", "peft.dropout=0.1", "training.layer_decay=0.7"),
        *("trainer.precision=64-true", "trainer.max_steps=8", "checkpoint.every_steps=3"),
        *("trainer.val_check_interval=6", 5),
    ),
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
    "shares of the gradient": (  # within an accumulation
        *("task=rte", "objective=[istar,cosreg,visreg]", SHARE, *EVERY_2, ACCUMULATED),
        *("training.objective_weight_schedule=linear_decay", 6),
    ),
    "zca_dense": (
        *("task=wic", "isotropy=zca_dense", "site=[tokens,pooled]", "checkpoint.every_steps=3"),
        5,
    ),
    "iso_grad": (
        *("task=wic", "isotropy=iso_grad", "isotropy.queue_rows=64", "site=[tokens,pooled]"),
        *("trainer.max_epochs=2", "trainer.log_every_n_steps=1", "trainer.val_check_interval=5"),
        *("checkpoint.every_steps=4", 15),
    ),
    "whitening": (  # stopped in the last step of an epoch, which has two batches of five
        *("task=wic", "isotropy=whitening", "isotropy.n_components=4", "trainer.max_epochs=2"),
        *("trainer.accumulate_grad_batches=5", *EVERY_2, 12),
    ),
    "every path": (*EVERY_PATH, 6),
    "clusters": ("isotropy=cluster_pca", *CLUSTERS, "isotropy.eval_stats=refit", 15),
    "protected": ("isotropy=protect_labels", *CLUSTERS, 7),
}


def weights_change(rows, state, _folder):
    assert bool((state["extra.weights.norms_O2"] > 0).all())
    weights = [row.get("objective/istar/effective_weight") for row in rows if "train/loss" in row]
    assert len({*weights}) > 3


def gradients_are_added(rows, _state, _folder):
    steps = [row for row in rows if "train/pooled/gradient_cosine" in row]
    assert len(steps) >= 20
    for site in ("tokens", "pooled"):
        assert all(row[f"train/{site}/gradient_added"] == pytest.approx(0.2) for row in steps)


def paths_are_taken(_rows, _state, folder):
    paths = json.loads((folder / "result.json").read_text())["speed"]
    assert paths == dict.fromkeys(("dropout", "last_block", "packing", "frozen_prefix"), "taken")


def clusters_are_followed(_rows, state, _folder):
    assert bool(state["model.transforms.pooled._extra_state"])
    assert int(state["model.transforms.pooled.queue._extra_state"][0]) > 0


CHECKS = {  # that the state which is kept through the stop is there
    "shares of the gradient": weights_change,
    "iso_grad": gradients_are_added,
    "every path": paths_are_taken,
    "clusters": clusters_are_followed,
}

FAILED = ("every path", "protected")  # an error goes back to a checkpoint; a signal writes one


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_ends_as_a_whole_one(composed, small, tmp_path, monkeypatch, case):
    *overrides, at = CASES[case]
    line = (*small, "metric=[]", "cache_dir=null", *overrides)
    whole = finished(composed(*line, f"output_dir={tmp_path / 'whole'}"))
    cfg = composed(*line, f"output_dir={tmp_path / 'stopped'}")
    stopped(cfg, monkeypatch, "training_step", at, fail if case in FAILED else terminate)
    assert_same_end(finished(cfg), whole)
    if check := CHECKS.get(case):
        check(*whole[1:], folder_of(cfg))
