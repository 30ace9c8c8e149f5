"""Runs on a GPU give what runs on the CPU give. Skipped where torch finds no GPU.

The runs are float64, without dropout and by SGD, so they differ by rounding alone; torchmetrics
keeps correlations, and layers that are fitted at the start their statistics, in float32.
"""

from __future__ import annotations

import pytest
import torch

from isotrain.analysis.weights import device_of
from isotrain.jobs.devices import cuda_devices
from tests.compositions import composed_once
from tests.parts import names
from tests.stopped_runs import finished, stopped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU"),
]
SGD = ("optimizer._target_=torch.optim.SGD", "optimizer.lr=0.05")
SGD += ("~optimizer.betas", "~optimizer.eps", "~optimizer.fused")
SHORT = ("trainer.max_steps=6", "trainer.val_check_interval=3", "trainer.log_every_n_steps=1")
SHORT += ("data.batch_size=16", "threads=1", "cache_dir=null")
EXACT = ("trainer.precision=64-true", "encoder.dropout=0", *SHORT, *SGD)
WIC = ("task=wic", "task.head_dropout=0", "metric=[isoscore_corrected]")
PAIRS = ("task=stsb", "task.form=bi", "pooling=mean", "metric=[isoscore_corrected]")
IN_PAIRS = {"dcl", "simcse", "alignment", "vicreg", "barlow"}
"""Objectives of positive pairs, which dropout would make where a task has none."""


@pytest.fixture
def assert_same(small, tmp_path):
    """Scores, records and weights of a run on either device agree."""

    def compare(*overrides):
        line = (*small, *EXACT, *overrides)
        found = []
        for device in ("cpu", "gpu"):
            where = (f"trainer.accelerator={device}", f"output_dir={tmp_path / device}")
            found.append(finished(composed_once(*line, *where)))
        (scores, rows, weights), (scores_gpu, rows_gpu, weights_gpu) = found
        assert scores == pytest.approx(scores_gpu, rel=1e-3, abs=1e-5)
        assert len(rows) == len(rows_gpu) > 6
        for row, row_gpu in zip(rows, rows_gpu, strict=True):
            assert row == pytest.approx(row_gpu, rel=1e-3, abs=1e-5, nan_ok=True)
        assert weights.keys() == weights_gpu.keys()
        for name, one in weights.items():
            assert one.device.type == weights_gpu[name].device.type == "cpu"
            assert (one - weights_gpu[name]).norm() <= 1e-4 * one.norm() + 1e-8, name

    return compare


@pytest.mark.parametrize("layer", names("isotropy"))
def test_layers(assert_same, layer):
    assert_same(*WIC, f"isotropy={layer}")


@pytest.mark.parametrize("objective", names("objective"))
def test_objectives(assert_same, objective):
    task = WIC if objective == "supcon" else PAIRS
    views = [f"objective.{objective}.positives=pair"] if objective in IN_PAIRS else []
    assert_same(*task, f"objective=[{objective}]", *views)


@pytest.mark.filterwarnings("ignore:isotropy/:UserWarning")  # some are undefined on equal rows
def test_metrics(assert_same):
    assert_same(*WIC, "isotropy=clip", f"metric=[{','.join(names('metric'))}]")


@pytest.mark.parametrize(
    "overrides",
    [
        ["freezing=head_first", "training.solved_head=true"],
        ["freezing=first_n", "freezing.n_blocks=1", "speed=exact"],
        ["objective=[istar,cosreg]", "training.objective_weight_as=share_of_task_gradient"],
        ["isotropy=cluster_pca", "site=[layer_1,tokens,pooled]"],
        ["isotropy=zca", "isotropy.stats=start", "isotropy.eval_stats=refit"],
    ],
)
def test_training(assert_same, overrides):
    assert_same(*WIC, *overrides)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_killed_run_goes_on(small, tmp_path, monkeypatch, precision):
    """With dropout on the GPU, whose generator is part of the state."""
    line = (*small, *SHORT, "task=wic", "isotropy=cluster_pca", "checkpoint.every_steps=1")
    line += ("trainer.accelerator=gpu", f"trainer.precision={precision}", "metric=[mean_cosine]")
    whole = finished(composed_once(*line, f"output_dir={tmp_path / 'whole'}"))
    cfg = composed_once(*line, f"output_dir={tmp_path / 'stopped'}")
    stopped(cfg, monkeypatch, "training_step", 4)
    scores, rows, weights = finished(cfg)
    assert scores == pytest.approx(whole[0], rel=1e-5)
    assert len(rows) == len(whole[1])
    for name, one in weights.items():
        torch.testing.assert_close(one, whole[2][name], rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore")  # what torch.compile itself says
def test_compiled_blocks(small, tmp_path):
    line = (*small, *EXACT, *WIC, "trainer.accelerator=gpu")
    plain, compiled = (
        finished(composed_once(*line, f"speed.compile={on}", f"output_dir={tmp_path / on}"))
        for on in ("false", "true")
    )
    for name, one in plain[2].items():
        torch.testing.assert_close(one, compiled[2][name], rtol=1e-6, atol=1e-8)


def test_devices_are_counted_as_torch_counts_them():
    assert len(cuda_devices()) == torch.cuda.device_count()
    assert device_of("auto") == "cuda"
