"""What is recorded of steps, at some of them, is what a record of every step has there."""

from isotrain.runner import folder_of
from isotrain.runs.files import read_records
from isotrain.training.module import FineTuning
from tests.stopped_runs import finished, stopped

LINE = (
    *("task=wic", "isotropy=cluster_pca", "objective=[simcse]", "metric=[]", "cache_dir=null"),
    *("data.n_train=92", "trainer.max_epochs=2", "+trainer.limit_val_batches=0"),
)
N_STEPS = 12  # of two batches each, the last one of an epoch of four examples


def of_training(rows):
    return {row["step"]: row for row in rows if "train/loss" in row}


def rows_of(composed, small, folder, *overrides):
    cfg = composed(*small, *LINE, f"output_dir={folder}", *overrides)
    return of_training(finished(cfg)[1])


def test_rows_at_an_interval(composed, small, tmp_path):
    more = ["trainer.accumulate_grad_batches=2"]
    every = rows_of(composed, small, tmp_path / "1", *more, "trainer.log_every_n_steps=1")
    third = rows_of(composed, small, tmp_path / "3", *more, "trainer.log_every_n_steps=3")
    assert list(every) == list(range(N_STEPS))
    assert list(third) == list(range(2, N_STEPS, 3))
    assert {step: every[step] for step in third} == third
    assert len({row["train/loss"] for row in every.values()}) == len(every)
    assert {"optim/gradient_norm", "optim/learning_rate", "train/simcse"} <= every[0].keys()


def test_rows_of_a_run_that_was_stopped(composed, small, tmp_path, monkeypatch):
    """Told to stop in step 4, of which nothing is due."""
    more = ["trainer.accumulate_grad_batches=2", "trainer.log_every_n_steps=3"]
    whole = rows_of(composed, small, tmp_path / "whole", *more)
    cfg = composed(*small, *LINE, f"output_dir={tmp_path / 'stopped'}", *more)
    stopped(cfg, monkeypatch, "training_step", 8)
    assert list(of_training(read_records(folder_of(cfg) / "metrics.jsonl"))) == [2]
    assert of_training(finished(cfg)[1]) == whole


def test_the_last_row_of_a_run_that_a_callback_ends(composed, small, tmp_path, monkeypatch):
    """Lightning records a step that ends training, whatever the interval."""
    every = rows_of(composed, small, tmp_path / "every", "trainer.log_every_n_steps=1")
    original = FineTuning.optimizer_step

    def ending(self, *arguments, **named):
        original(self, *arguments, **named)
        self.trainer.should_stop = self.trainer.global_step == 4  # steps before this one

    monkeypatch.setattr(FineTuning, "optimizer_step", ending)
    rows = rows_of(composed, small, tmp_path / "ended", "trainer.log_every_n_steps=3")
    assert list(rows) == [2, 4]
    assert rows[4] == every[4]
