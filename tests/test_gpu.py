"""Runs on a GPU give what runs on the CPU give. Skipped where torch finds no GPU.

The runs are float64, without dropout and by SGD, so weights differ by rounding, but for layers that
are fitted before the first step, in float32. torchmetrics keeps correlations in float32.
"""

import pytest
import torch

from isotrain.analysis.run import device_of
from isotrain.encoders.fast import TAKEN
from isotrain.launch.devices import cuda_devices
from isotrain.runner import folder_of
from isotrain.runs.files import read_result
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


FITTED = {"frozen_zca", "zca_dense", "anti_clip"}
"""Layers that are fitted before the first step."""


def assert_same_rows(one, two):
    assert len(one) == len(two) > 6
    for row_one, row_two in zip(one, two, strict=True):
        assert row_one == pytest.approx(row_two, rel=1e-3, abs=1e-5, nan_ok=True)


def assert_same_weights(one, two, start, fitted):
    """Up to 1e-6 of how far a tensor moved, or 1e-3 of its norm where float32 fits are in it."""
    assert one.keys() == two.keys() == start.keys()
    for name in one:
        first, second, began = (state[name].double() for state in (one, two, start))
        bound = 1e-3 * first.norm() if fitted else 1e-6 * (first - began).norm()
        assert (first - second).norm() <= bound + 1e-9, name


@pytest.fixture
def assert_same(small, tmp_path):
    """Scores, records and weights of a run on either device agree."""

    def compare(*overrides, fitted=False):
        line = (*small, *EXACT, *overrides)
        cpu, gpu = (
            finished(
                composed_once(*line, f"trainer.accelerator={on}", f"output_dir={tmp_path / on}")
            )
            for on in ("cpu", "gpu")
        )
        short = (*line, "trainer.accelerator=cpu", "trainer.max_steps=1", "optimizer.lr=1e-12")
        *_, start = finished(composed_once(*short, f"output_dir={tmp_path / 'start'}"))
        assert cpu[0] == pytest.approx(gpu[0], rel=1e-3, abs=1e-5)
        assert_same_rows(cpu[1], gpu[1])
        assert_same_weights(cpu[2], gpu[2], start, fitted)

    return compare


@pytest.mark.parametrize("layer", names("isotropy"))
def test_layers(assert_same, layer):
    assert_same(*WIC, f"isotropy={layer}", fitted=layer in FITTED)


@pytest.mark.parametrize("objective", names("objective"))
def test_objectives(assert_same, objective):
    task = WIC if objective == "supcon" else PAIRS
    views = [f"objective.{objective}.positives=pair"] if objective in IN_PAIRS else []
    assert_same(*task, f"objective=[{objective}]", *views)


@pytest.mark.filterwarnings("ignore:isotropy/:UserWarning")  # some are undefined on equal rows
def test_metrics(assert_same):
    assert_same(*WIC, "isotropy=clip", f"metric=[{','.join(names('metric'))}]")


WAYS = {
    "solved head": ["freezing=head_first", "training.solved_head=true"],
    "frozen block": ["freezing=first_n", "freezing.n_blocks=1", "speed=exact"],
    "shares of the gradient": [
        *("objective=[istar,cosreg]", "training.objective_weight_as=share_of_task_gradient")
    ],
    "three sites": ["isotropy=cluster_pca", "site=[layer_1,tokens,pooled]"],
    "fitted": ["isotropy=zca", "isotropy.stats=start", "isotropy.eval_stats=refit"],
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_train(assert_same, way):
    assert_same(*WIC, *WAYS[way], fitted=way in ("solved head", "fitted"))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_a_stopped_run_goes_on(small, tmp_path, monkeypatch, precision):
    """With dropout on the GPU, whose generator is part of the state."""
    line = (*small, *SHORT, "task=wic", "isotropy=cluster_pca", "optimizer.fused=false")
    line += ("trainer.accelerator=gpu", f"trainer.precision={precision}", "metric=[mean_cosine]")
    whole = finished(composed_once(*line, f"output_dir={tmp_path / 'whole'}"))
    cfg = composed_once(*line, f"output_dir={tmp_path / 'stopped'}")
    folder = stopped(cfg, monkeypatch, "training_step", 4)
    scores, rows, weights = finished(cfg)
    assert read_result(folder)["resumed_after_step"] == 4
    assert scores == pytest.approx(whole[0], rel=1e-3, abs=1e-5)
    assert_same_rows(rows, whole[1])
    for name, one in weights.items():
        torch.testing.assert_close(one, whole[2][name], rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore")  # torch.compile imports what warns
def test_compiled_blocks(small, tmp_path):
    line = (*small, *EXACT, *WIC, "trainer.accelerator=gpu")
    plain, compiled = (
        (composed_once(*line, f"speed.compile={on}", f"output_dir={tmp_path / on}"))
        for on in ("false", "true")
    )
    (_, rows, weights), (_, rows_compiled, weights_compiled) = finished(plain), finished(compiled)
    assert read_result(folder_of(compiled))["speed"]["compile"] == TAKEN
    assert_same_rows(rows, rows_compiled)
    for name, one in weights.items():
        torch.testing.assert_close(one, weights_compiled[name], rtol=1e-6, atol=1e-8)


def test_devices_are_counted_as_torch_counts_them():
    assert len(cuda_devices()) == torch.cuda.device_count()
    assert device_of("auto") == "cuda"
