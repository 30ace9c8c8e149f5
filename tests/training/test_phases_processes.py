"""One process and two, through an unfreezing: the same weights, and no warning of DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def environment():
    kept = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    return {**kept, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def overrides(small):
    """Nine steps in three phases, each step of two uneven micro-batches."""
    return [
        *small,
        *("task=wic", "task.head_dropout=0", "encoder.dropout=0", "threads=1", "metric=[]"),
        *("data.batch_size=15", "trainer.accumulate_grad_batches=2", "trainer.max_epochs=3"),
        *("trainer.max_steps=9", "trainer.precision=64-true", "training.warmup_fraction=0"),
        *("freezing=gradual", "freezing.unit=step", "freezing.every=3"),
        *("training.layer_decay=0.5", "training.reinit_blocks=1"),
        # SGD: what it adds to the weights is the gradient. Adam would divide rounding by rounding.
        *("optimizer._target_=torch.optim.SGD", "optimizer.lr=0.05"),
        *("~optimizer.betas", "~optimizer.eps", "~optimizer.fused"),
    ]


def finished(environment, cwd, *overrides):
    done = subprocess.run(
        [sys.executable, "-m", "isotrain", "train", *overrides],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stdout + done.stderr, done.stderr
    (folder,) = (path.parent for path in cwd.rglob("result.json"))
    state = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]
    return json.loads((folder / "result.json").read_text()), state, done.stdout


@pytest.mark.slow
def test_two_processes_agree_with_one_through_an_unfreezing(environment, overrides, tmp_path):
    found = {}
    for n in (1, 2):
        (tmp_path / str(n)).mkdir()
        found[n] = finished(environment, tmp_path / str(n), *overrides, f"trainer.devices={n}")
    (result, one, printed), (of_two, two, printed_by_two) = found[1], found[2]
    assert of_two["n_processes"] == 2
    assert result["steps"] == of_two["steps"] == 9
    assert [phase["from_step"] for phase in result["phases"]] == [0, 3, 6]
    assert result["phases"] == of_two["phases"]
    assert printed.count("from step") == printed_by_two.count("from step") == 3
    assert one.keys() == two.keys()
    for name, value in one.items():
        if not name.endswith("attention.self.key.bias"):  # softmax ignores it: rounding alone
            distance = float((value - two[name]).double().norm())
            assert distance <= 1e-9 * float(value.double().norm()), name
    assert len(one) > 35
