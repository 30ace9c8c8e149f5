"""Weights and read points of objectives, checked before anything is loaded."""

from __future__ import annotations

import pytest

from isotrain.config.rules import mistakes_in


@pytest.fixture
def told(composed):
    def mistakes(*overrides):
        return mistakes_in(composed("encoder=tiny", "source=demo", "task.form=bi", *overrides))

    return mistakes


@pytest.mark.parametrize("weight", ["0", "-1", "1e-9"])
def test_a_weight_is_any_number(told, weight):
    """0 too: a control arm with the same passes and draws, whose loss is logged all the same."""
    assert told("objective=[istar]", f"objective.istar.weight={weight}") == []


@pytest.mark.parametrize(
    ("overrides", "start"),
    [
        (("objective.istar.reads=[]",), "objective.istar.reads must be a list that names each"),
        (("objective.istar.reads=[pooled,pooled]",), "objective.istar.reads must be a list"),
        (("objective.istar.reads=[layer_1]",), "objective.istar.reads: a read point is pooled"),
        (
            ("objective.istar.reads=[before]", "site=[tokens]"),
            "objective.istar.reads=[before] is the input of the isotropy layer at pooled",
        ),
    ],
)
def test_read_points_that_there_are_none_of(told, overrides, start):
    (mistake,) = told("objective=[istar]", *overrides)
    assert mistake.startswith(start)
