"""The progress bar: short names, the score and one isotropy value among them."""

from __future__ import annotations

from types import SimpleNamespace

from isotrain.training.progress import Progress


def test_values_are_shown_without_their_stage():
    logged = {"train/loss": 0.5, "val/accuracy": 0.75, "isoscore": 0.25}
    trainer = SimpleNamespace(progress_bar_metrics=logged)
    shown = Progress().get_metrics(trainer, None)
    assert shown == {"loss": 0.5, "accuracy": 0.75, "isoscore": 0.25}


def test_a_run_offers_the_score_and_the_headline(built):
    experiment = built(
        "trainer.max_epochs=1", "trainer.max_steps=-1", "monitor.headline=mean_cosine"
    )
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert set(Progress().get_metrics(experiment.trainer, experiment.module)) == {
        "loss",
        "accuracy",
        "mean_cosine",
    }
