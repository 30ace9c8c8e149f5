"""W&B and TensorBoard after a run was stopped and resumed."""

import os
import signal
import time

import pytest
from pytorch_lightning.utilities.exceptions import SIGTERMException
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from isotrain.pages.show import show_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records
from isotrain.training.module import FineTuning
from tests import wandb_record


def test_a_resumed_run_goes_on_in_its_loggers(composed, small, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    cfg = composed(
        *small,
        *("task=wic", "metric=[]", "logger=[wandb,tensorboard]", "trainer.log_every_n_steps=2"),
        *("checkpoint.every_steps=3", "cache_dir=null", f"output_dir={tmp_path}"),
    )
    original = FineTuning.training_step

    def stopping(how, at):
        def step(self, batch, batch_idx):
            if batch_idx == at:
                how()
            return original(self, batch, batch_idx)

        return step

    def fail():
        raise RuntimeError("stopped")

    for how, at in ((fail, 7), (lambda: os.kill(os.getpid(), signal.SIGTERM), 9)):
        with monkeypatch.context() as patch:
            patch.setattr(FineTuning, "training_step", stopping(how, at))
            with pytest.raises((RuntimeError, SIGTERMException)):
                run(cfg, show=show_run)
        time.sleep(1.1)  # TensorBoard orders its files by the second, then by numbers as text
    run(cfg, show=show_run)
    folder = folder_of(cfg)
    rows = read_records(folder / "metrics.jsonl")
    assert [row["step"] for row in rows if "train/loss" in row] == [1, 3, 5, 7, 9, 11]
    losses = [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row]

    tries = sorted(
        folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime_ns
    )
    assert len({path.name for path in tries}) == 1, "one id over all tries"
    assert [wandb_record.exit_codes(path) for path in tries] == [[1], [1], [0]]
    sent = [[(r["trainer/global_step"], r["train/loss"]) for r in trained(path)] for path in tries]
    assert sent == [losses[:3], losses[3:5], losses[5:]], "each goes on after its checkpoint"
    last = wandb_record.summary(tries[-1])
    assert last["final/val/accuracy"] == rows[-2]["val/accuracy"]
    assert not any(key.startswith("final/") for key in wandb_record.summary(tries[0]))

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    found = [(event.step, pytest.approx(event.value)) for event in events.Scalars("train/loss")]
    assert found == losses
    assert len(events.Scalars("val/accuracy")) == sum("val/accuracy" in row for row in rows)


def trained(path):
    """The rows of training steps that a try sent."""
    return [row for row in wandb_record.scalars(path) if "train/loss" in row]
