"""What is refused of selecting weights by evaluations, and what these keys are part of."""

from __future__ import annotations

import pytest

from isotrain.config.compose import compose_run, content_hash
from tests.judge import all_mistakes, check_command
from tests.parts import WITHOUT_LOSS

BASE = ("encoder=tiny", "source=demo", "threads=1")


def mistakes(*overrides):
    return all_mistakes(compose_run([*BASE, *overrides]))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["training.select=best", "training.patience=1"],
        ["training.select=holdout", "data.holdout=0.5"],
        ["data.holdout=0.1"],
        ["+trainer.limit_val_batches=0"],
        ["data.n_dev=3", "training.select=best"],
    ],
)
def test_what_goes_together(overrides):
    assert mistakes(*overrides) == []


@pytest.mark.parametrize("share", ["0", "1", "-0.1", "1.5", "nan"])
def test_a_share_lies_between_none_and_all(share):
    (mistake,) = mistakes("training.select=holdout", f"data.holdout={share}")
    rule = "below 1" if float(share) >= 1 else "above 0"
    assert mistake.startswith(f"data.holdout must be {rule}, got ")


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (["training.select=best"], ["training.select=best"]),
        (["training.patience=2"], ["training.patience=2"]),
        (
            ["training.select=holdout", "training.patience=3"],
            ["training.select=holdout", "training.patience=3"],
        ),
    ],
)
def test_evaluations_that_are_never_made_are_told(overrides, keys):
    found = mistakes(*overrides, "+trainer.limit_val_batches=0")
    assert [mistake.partition(" goes by evaluations")[0] for mistake in found] == keys


@pytest.mark.parametrize("task", WITHOUT_LOSS)
def test_rows_without_labels_cannot_be_scored(task):
    keys = (f"task={task}", "objective=[simcse]")
    (mistake,) = mistakes(*keys, "training.select=holdout")
    assert "have no labels; use training.select=best" in mistake
    assert mistakes(*keys, "training.select=best") == []


def test_patience_is_one_at_least():
    assert mistakes("training.patience=0") == ["training.patience must be at least 1, got 0"]


def test_another_choice_is_no_choice():
    _, (mistake,) = check_command([*BASE, "training.select=first"])
    assert "'first'" in mistake
    assert "last, best, holdout" in mistake


@pytest.mark.parametrize(
    "override",
    [
        "training.select=best",
        "training.patience=3",
        "data.holdout=0.2",
        "init_from=runs/x",
        "training.select=holdout",
    ],
)
def test_each_key_names_another_run(override):
    assert content_hash(compose_run([*BASE, override])) != content_hash(compose_run(BASE))
