"""The lines of training and evaluation: what they say at which moment, and their short names."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
from rich.console import Console
from rich.text import Text

from isotrain.training.callbacks import progress_bar as module
from isotrain.training.callbacks.progress_bar import Progress, Times


def test_values_are_shown_without_stage_and_place():
    logged = {
        "train/loss": 0.5,
        "val/accuracy": 0.75,
        "isotropy/isoscore/layer_02/tokens": 0.25,
        "mean_cosine": 0.125,
    }
    logged = dict(reversed(logged.items()))  # scores are logged behind isotropy
    shown = Progress().get_metrics(SimpleNamespace(progress_bar_metrics=logged), None)
    found = [("loss", 0.5), ("accuracy", 0.75), ("mean_cosine", 0.125), ("isoscore", 0.25)]
    assert list(shown.items()) == found


class Watcher(pl.Callback):
    """Notes the lines and values that stand there at some moments; it comes behind the bar."""

    def __init__(self, progress):
        super().__init__()
        self.progress, self.noted = progress, []

    def note(self, moment):
        lines = self.progress._lines
        tasks = [(t.description, t.completed, t.total) for t in lines.tasks]
        self.noted.append((moment, tasks, set(lines.values)))

    def on_validation_start(self, *_):
        self.note("fit layers")

    def on_validation_batch_end(self, *_, **__):
        self.note("dev")

    def on_validation_epoch_end(self, *_):
        self.note("measure")

    def on_validation_end(self, *_):
        self.note("evaluated")

    def on_train_epoch_start(self, *_):
        self.note("epoch")

    def on_train_batch_end(self, *_):
        self.note("step")

    def on_test_batch_end(self, *_, **__):
        self.note("test")


@pytest.fixture
def watched(built, monkeypatch):
    """A built run with the bar on a terminal of 80 columns, and who notes what it shows."""
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=80)
    monkeypatch.setattr(module, "get_console", lambda: console)

    def of(*overrides):
        experiment = built(*overrides)
        progress = Progress()
        watcher = Watcher(progress)
        experiment.trainer.callbacks += [progress, watcher]
        return experiment, watcher, text

    return of


def test_each_part_of_a_run_is_named_and_counted(watched):
    experiment, watcher, text = watched(
        *("trainer.max_epochs=1", "trainer.max_steps=-1", "data.eval_batch_size=8"),
        *("monitor.headline=[mean_cosine]", "isotropy=mean"),
    )
    trainer, data = experiment.trainer, experiment.data
    trainer.validate(experiment.module, datamodule=data, verbose=False)
    at_start, watcher.noted = watcher.noted, []
    n_dev = len(data.val_dataloader())
    assert at_start[0] == ("fit layers", [("fitting the layers", 0, None)], set())
    parts = ["evaluating on dev"] * (n_dev - 1) + ["scores and isotropy"]
    expected = [("dev", [(part, k + 1, n_dev)], set()) for k, part in enumerate(parts)]
    assert at_start[1 : 1 + n_dev] == expected
    assert at_start[-1] == ("evaluated", [], {"accuracy", "mean_cosine"})

    trainer.fit(experiment.module, datamodule=data)
    n_steps = data.n_batches(1)
    assert watcher.noted[0][:2] == ("epoch", [("preparing epoch 1", 0, n_steps)])
    steps = [tasks for moment, tasks, _ in watcher.noted if moment == "step"]
    assert steps == [[("epoch 1", k + 1, n_steps)] for k in range(n_steps)]
    evaluated = [tasks for moment, tasks, _ in watcher.noted if moment == "measure"]
    assert evaluated == [[("epoch 1", n_steps, n_steps), ("scores and isotropy", n_dev, n_dev)]]
    assert watcher.noted[-1][2] == {"loss", "accuracy", "mean_cosine"}

    trainer.test(experiment.module, datamodule=data, verbose=False)
    n_test = len(data.test_dataloader())
    tested = [tasks for moment, tasks, _ in watcher.noted if moment == "test"]
    assert [t[0][0] for t in tested[:-1]] == ["evaluating on test"] * (n_test - 1)
    assert tested[-1] == [("scores and isotropy", n_test, n_test)]
    assert watcher.progress._lines is None, "nothing is left to stop"
    shown = text.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 3, "the cursor is back"


def test_rows_that_are_held_out_are_named(watched):
    experiment, watcher, _ = watched("training.select=holdout", "data.eval_batch_size=4")
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    n_dev, n_held_out = map(len, experiment.data.val_dataloader())
    n = n_dev + n_held_out
    found = [tasks[0] for moment, tasks, _ in watcher.noted if moment == "dev"]
    assert [done for _, done, _ in found] == list(range(1, n + 1))
    assert {total for *_, total in found} == {n}, "one line for both"
    names = ["evaluating on dev"] * n_dev + ["held-out examples"] * (n_held_out - 1)
    assert [name for name, *_ in found] == [*names, "scores and isotropy"]
    assert n_held_out > 1


def test_an_error_takes_the_lines_away(watched, monkeypatch):
    experiment, watcher, text = watched()

    def fail(*_):
        raise RuntimeError("told")

    monkeypatch.setattr(experiment.module, "training_step", fail)
    with pytest.raises(RuntimeError, match="told"):
        experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert watcher.progress._lines is None
    assert text.getvalue().count("\x1b[?25h") == 1


def test_a_disabled_bar_shows_nothing(watched):
    experiment, watcher, text = watched("metric=[]")
    watcher.progress.disable()
    experiment.trainer.callbacks.remove(watcher)
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    assert text.getvalue() == ""


@pytest.mark.parametrize(
    ("elapsed", "left", "shown"),
    [(12.0, 220.0, "0:12, 3:40 left"), (12.0, None, "0:12"), (3700.0, 0.0, "1:01:40")],
)
def test_times(elapsed, left, shown):
    task = SimpleNamespace(elapsed=elapsed, time_remaining=left)
    assert Times().render(task) == Text(shown)
