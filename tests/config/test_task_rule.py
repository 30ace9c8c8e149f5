"""Tasks whose training rows have no labels: what they cannot be combined with."""

from __future__ import annotations

import pytest

from tests.judge import all_mistakes
from tests.parts import WITHOUT_LOSS


@pytest.mark.parametrize("task", WITHOUT_LOSS)
@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((), "task={} has nothing to learn from without an objective; add objective=[simcse]"),
        (
            ("objective=[simcse]", "objective.simcse.weight=0"),
            "task={} has nothing to learn from without an objective of a weight other than 0",
        ),
        (
            ("objective=[supcon]",),
            "objective=supcon reads labels, and the training rows of task={}",
        ),
        (
            (
                "objective=[simcse]",
                "objective.simcse.positives=pair",
                "objective.simcse.positive_labels=[1,1]",
            ),
            "objective.simcse.positive_labels chooses pairs by their label, and the training rows",
        ),
        (
            ("objective=[simcse]", "isotropy=protect_labels"),
            "isotropy.protect.labels=true reads labels, and the training rows of task={} have no "
            "labels",
        ),
        *(
            (
                ("objective=[simcse]", f"data.{change}"),
                f"data.{change.partition('=')[0]} changes labels or pairs, and the training rows",
            )
            for change in ("label_skew=0.5", "label_noise=0.1", "hypothesis_only=true")
        ),
        (
            ("objective=[simcse]", "training.select=holdout"),
            "training.select=holdout scores training rows, and the training rows of task={}",
        ),
    ],
)
def test_what_does_not_go_together_is_told(composed, task, overrides, told):
    cfg = composed("encoder=tiny", "source=demo", f"task={task}", *overrides)
    (mistake,) = all_mistakes(cfg)
    assert mistake.startswith(told.format(task))


def test_an_objective_of_a_users_that_reads_labels_is_told(composed, package, monkeypatch):
    module = package(
        "class Mine:\n    n_views, needs = 1, 'scored_pairs'\n    def __init__(self): ..."
    )
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    cfg = composed("encoder=tiny", "source=demo", "task=nli_pairs", "objective=[simcse]")
    cfg.objective.simcse = {"_target_": f"{module}.Mine"}
    assert [one.partition(" reads")[0] for one in all_mistakes(cfg)] == ["objective=simcse"]


def test_hard_negatives_are_for_objectives_of_pairs(composed):
    given = ("encoder=tiny", "source=demo", "task=nli_pairs", "objective=[simcse]")
    hard, pair = "task.hard_negatives=true", "objective.simcse.positives=pair"
    (mistake,) = all_mistakes(composed(*given, hard))
    assert mistake.startswith("task.hard_negatives=true gives pairs a negative of their own")
    assert all_mistakes(composed(*given, hard, pair)) == []
    assert all_mistakes(composed(*given)) == []


def test_tasks_with_a_loss_are_not_judged(composed):
    for task in ("rte", "snli", "stsb"):
        assert all_mistakes(composed("encoder=tiny", "source=demo", f"task={task}")) == []
