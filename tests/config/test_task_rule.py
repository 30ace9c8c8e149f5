"""Tasks whose labels are scores, or whose training rows have none: what does not go with them."""

from __future__ import annotations

import pytest

from isotrain.config.rules import mistakes_in


@pytest.mark.parametrize("task", ["text", "nli_pairs", "stsb_sentences"])
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
            "isotropy.protect=labels reads labels, and the training rows of task={} have none",
        ),
        (
            ("objective=[simcse]", "training.select=holdout"),
            "training.select=holdout scores training rows, and those of task={} have no labels",
        ),
    ],
)
def test_what_does_not_go_together_is_told(composed, task, overrides, told):
    cfg = composed("encoder=tiny", "source=demo", f"task={task}", *overrides)
    (mistake,) = mistakes_in(cfg)
    assert mistake.startswith(told.format(task))


def test_an_objective_of_a_users_that_reads_labels_is_told(composed, package, monkeypatch):
    module = package(
        "class Mine:\n    n_views, needs = 1, 'scored_pairs'\n    def __init__(self): ..."
    )
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    cfg = composed("encoder=tiny", "source=demo", "task=nli_pairs", "objective=[simcse]")
    cfg.objective.simcse = {"_target_": f"{module}.Mine"}
    assert [one.partition(" reads")[0] for one in mistakes_in(cfg)] == ["objective=simcse"]


SCORES = "compares classes, and labels of task={} are scores; leave it out"


@pytest.mark.parametrize("task", ["stsb", "text", "nli_pairs"])
def test_scores_are_no_classes(composed, task):
    objective = ("objective=[simcse]",) if task != "stsb" else ("objective=[supcon,cosreg]",)
    metric = "metric=[isoscore,label_silhouette,scatter_ratio]"
    cfg = composed("encoder=tiny", "source=demo", f"task={task}", metric, *objective)
    parts = ["objective=supcon"] if task == "stsb" else []
    parts += ["metric=label_silhouette", "metric=scatter_ratio"]
    assert mistakes_in(cfg) == [f"{part} {SCORES.format(task)}" for part in parts]


@pytest.mark.parametrize("task", ["rte", "snli", "wic"])
def test_classes_are_compared(composed, task):
    parts = ("objective=[supcon]", "metric=[label_silhouette]")
    assert mistakes_in(composed("encoder=tiny", "source=demo", f"task={task}", *parts)) == []


def test_scores_are_compared_in_their_order(composed):
    parts = ("task.form=bi", "objective=[cosent]", "metric=[isoscore]")
    assert mistakes_in(composed("encoder=tiny", "source=demo", "task=stsb", *parts)) == []
