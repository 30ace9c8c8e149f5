"""A regression by cosine without its squared error: objectives alone train."""

import pytest

from isotrain.tasks.regression import Regression
from tests.stopped_runs import finished

BI = ("task=stsb", "task.form=bi", "pooling=mean", "metric=[]", "cache_dir=null")
COSENT = ("objective=[cosent]", "trainer.max_steps=1", "trainer.log_every_n_steps=1")


def test_the_ranking_is_all_that_trains(composed, small, tmp_path):
    both, alone = (
        finished(composed(*small, *BI, *COSENT, *more, f"output_dir={tmp_path / name}"))[1]
        for name, more in (("both", ()), ("alone", ("task.has_loss=false",)))
    )
    (of_both,), (of_alone,) = ([r for r in rows if "train/loss" in r] for rows in (both, alone))
    assert of_alone["train/loss"] == of_alone["train/cosent"] == of_both["train/cosent"] > 0
    assert "train/task_loss" not in of_alone
    assert both[0]["val/loss"] == alone[0]["val/loss"]  # the squared error of the cosine


def test_a_run_without_any_loss_is_rejected(built):
    with pytest.raises(ValueError, match=r"task=stsb has no loss, .*add an objective"):
        built(*BI, "task.has_loss=false")


@pytest.mark.parametrize("head", [{"form": "cross"}, {"form": "bi", "scaled_cosine": True}])
def test_a_head_that_nothing_would_train_is_rejected(head):
    with pytest.raises(ValueError, match="has_loss=false trains by objectives alone"):
        Regression(text=["a", "b"], has_loss=False, **head)
