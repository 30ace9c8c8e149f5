"""Lightning callbacks in a run, by yaml: shipped ones, and one of a user's package."""

import json

import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import load_file

from isotrain.build import build
from isotrain.config.compose import compose_run
from isotrain.runner import run
from isotrain.training.module import FineTuning
from tests.parts import Counted


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine/callbacks"
    folder.mkdir(parents=True)
    (folder / "counted.yaml").write_text(
        "counted:\n  _target_: tests.parts.Counted\n  key: isotropy/mean_cosine/layer_02/mean\n"
    )
    Counted.seen = []
    return str(folder.parent)


def test_callbacks_of_ones_own_and_shipped_ones_see_isotropy_values(
    small, tmp_path, mine, monkeypatch
):
    watched = "isotropy/mean_cosine/layer_02/mean"
    words = (
        *("callbacks=[counted,early_stopping,model_checkpoint]", "metric=[mean_cosine]"),
        *(f"callbacks.early_stopping.monitor={watched}", "callbacks.early_stopping.patience=2"),
        *("callbacks.early_stopping.mode=max", "callbacks.model_checkpoint.mode=max"),
        *("callbacks.early_stopping.min_delta=9", f"callbacks.model_checkpoint.monitor={watched}"),
        *("trainer.max_epochs=9", "trainer.val_check_interval=3"),
    )
    cfg = compose_run([*small, "task=wic", f"output_dir={tmp_path}", *words], mine)
    run(cfg)
    (path,) = tmp_path.rglob("result.json")
    result = json.loads(path.read_text())
    assert result["stopped_early"]
    assert Counted.seen[0][0] == 0
    assert len([step for step, _ in Counted.seen if step]) >= 3
    lines = (path.parent / "metrics.jsonl").read_text().splitlines()
    records = map(json.loads, lines)
    curve = {row["step"]: row[watched] for row in records if watched in row}
    assert {step: pytest.approx(value) for step, value in Counted.seen} == curve
    (saved,) = (path.parent / "checkpoints").glob("*.ckpt")
    state = torch.load(saved, weights_only=True)
    best = max((value, -step) for step, value in Counted.seen if step)
    assert state["global_step"] == -best[1]
    monkeypatch.setenv("ISOTRAIN_ALLOW", "tests")  # it is code of the record
    module = FineTuning.from_run(path.parent)
    assert not module.training
    weights = load_file(path.parent / "weights.safetensors")
    assert all(torch.equal(weights[f"model.{n}"], x) for n, x in module.model.named_parameters())


@pytest.mark.parametrize("kind", ["EMAWeightAveraging", "StochasticWeightAveraging"])
def test_a_callback_that_averages_weights_is_rejected(built, kind):
    words = f"+callbacks.mine={{_target_: pytorch_lightning.callbacks.{kind}}}"
    options = {"StochasticWeightAveraging": ["+callbacks.mine.swa_lrs=0.1"]}.get(kind, [])
    with pytest.raises(ValueError, match=f"callbacks: {kind} would score averaged weights"):
        built("task=rte", words, *options)


@pytest.mark.parametrize("layer", ["cluster_pca", "zca"])
def test_the_module_of_a_run_evaluates_with_the_statistics_of_the_run(small, tmp_path, layer):
    cfg = compose_run([*small, "task=wic", f"isotropy={layer}", f"output_dir={tmp_path}"])
    scores = run(cfg)
    (path,) = tmp_path.rglob("result.json")
    module, data = FineTuning.from_run(path.parent), build(cfg, tmp_path / "other", None).data
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
    trainer.validate(module, datamodule=data, verbose=False)
    for key in ("val/accuracy", "val/loss"):
        assert float(trainer.callback_metrics[key]) == pytest.approx(scores[key], rel=1e-6), key


@pytest.mark.parametrize(
    ("monitor", "mode", "expected"),
    [("score", "auto", "max"), ("score", "min", "max"), ("val/loss", "auto", "min")],
)
def test_the_mode_is_that_of_what_is_watched(built, monitor, mode, expected):
    words = (f"callbacks.early_stopping.monitor={monitor}", f"callbacks.early_stopping.mode={mode}")
    trainer = built("task=rte", "metric=[]", "callbacks=[early_stopping]", *words).trainer
    (stopping,) = trainer.early_stopping_callbacks
    assert stopping.mode == expected


def test_a_value_that_may_go_both_ways_needs_a_mode(built):
    watched = "callbacks.early_stopping.monitor=isotropy/isoscore/layer_01/cls"
    with pytest.raises(ValueError, match="needs mode=min or mode=max"):
        built("task=rte", "metric=[isoscore]", "callbacks=[early_stopping]", watched)
