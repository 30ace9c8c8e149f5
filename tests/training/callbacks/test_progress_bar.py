"""Lightning's bar with short names, and nothing left on the terminal."""

from io import StringIO

import pytest
import rich
from rich.console import Console

from isotrain.training.callbacks.progress_bar import Progress


@pytest.fixture
def watched(built, monkeypatch):
    """A built run with the bar on a terminal of 120 columns, and what is written there."""
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    monkeypatch.setattr(rich, "_console", console)
    monkeypatch.setattr(
        "pytorch_lightning.callbacks.progress.rich_progress.reconfigure", lambda **_: None
    )
    experiment = built("monitor.headline=[mean_cosine]", "isotropy=mean", "training.select=holdout")
    experiment.trainer.callbacks.append(Progress(refresh_rate=1000))
    return experiment, text


def test_a_run_is_shown_by_short_names_and_taken_away(watched):
    experiment, text = watched
    for call in ("validate", "fit", "test"):
        getattr(experiment.trainer, call)(experiment.module, datamodule=experiment.data)
        assert text.getvalue().count("\x1b[?25l") == text.getvalue().count("\x1b[?25h"), "cursor"
    shown = text.getvalue()
    for word in ("Epoch 0", "Validation", "Testing", "loss: 0.", "accuracy: 0.", "mean_cosine: "):
        assert word in shown
    assert "train/loss" not in shown


def test_an_error_takes_the_bar_away(watched, monkeypatch):
    experiment, text = watched

    def fail(*_):
        raise RuntimeError("told")

    monkeypatch.setattr(experiment.module, "training_step", fail)
    with pytest.raises(RuntimeError, match="told"):
        experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert text.getvalue().count("\x1b[?25l") == text.getvalue().count("\x1b[?25h")
