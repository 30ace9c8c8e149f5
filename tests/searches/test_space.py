"""Parameters: what a yaml may say, which points a space has, which of them judge it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.studies.space import corners, grid, parameters, space_mistakes

SPACE = {
    "isotropy": ["none", "clip", "mean"],
    "isotropy.n_components": {"low": 1, "high": 5, "step": 2, "when": {"isotropy": "clip"}},
    "optimizer.lr": {"low": 0.1, "high": 0.3, "step": 0.1},
}


def test_a_grid_has_a_conditional_value_beside_its_option_alone():
    points = grid(parameters(SPACE))
    assert len(points) == (1 + 3 + 1) * 3
    assert [p for p in points if p["isotropy"] != "clip" and "isotropy.n_components" in p] == []
    assert [p["isotropy.n_components"] for p in points if p["isotropy"] == "clip"][::3] == [1, 3, 5]
    assert points[:2] == [
        {"isotropy": "none", "optimizer.lr": 0.1},
        {"isotropy": "none", "optimizer.lr": 0.2},
    ]


def test_every_end_is_in_a_corner_with_what_it_asks_for():
    space = parameters(SPACE)
    found = corners(space)
    assert found[0] == {"isotropy": "none", "optimizer.lr": 0.1}
    assert found[-1] == {"isotropy": "mean", "optimizer.lr": 0.3}
    for parameter in space:
        for end in parameter.ends():
            assert any(point.get(parameter.key) == end for point in found)
    assert {"isotropy": "clip", "isotropy.n_components": 5, "optimizer.lr": 0.1} in found
    assert len(found) == len({str(point) for point in found}) == 6


def test_a_condition_on_a_conditional_parameter_brings_both():
    space = parameters(
        {
            "a": ["x", "y"],
            "b": {"options": [1, 2], "when": {"a": "y"}},
            "c": {"low": 0.0, "high": 1.0, "when": {"b": [2]}},
        }
    )
    assert {"a": "y", "b": "2", "c": 1.0} in corners(space)
    assert not any("c" in p and p.get("b") != "2" for p in corners(space))


@settings(max_examples=60)
@given(
    low=st.integers(-50, 50),
    step=st.integers(1, 9),
    n_steps=st.integers(1, 30),
    places=st.integers(0, 3),
)
def test_a_stepped_range_has_its_ends_and_even_steps(low, step, n_steps, places):
    scale = 10**places
    given = {"low": low / scale, "high": (low + n_steps * step) / scale, "step": step / scale}
    assert space_mistakes({"x": given}) == []
    values = parameters({"x": given})[0].every()
    assert values == tuple((low + k * step) / scale for k in range(n_steps + 1))
    whole = {"low": low, "high": low + n_steps * step, "step": step}
    assert parameters({"x": whole})[0].every() == tuple(range(low, low + n_steps * step + 1, step))


def test_what_has_no_end_has_no_list():
    lr, n = parameters({"lr": {"low": 0.1, "high": 0.2}, "n": {"low": 1, "high": 9, "log": True}})
    assert lr.every() is None
    assert n.every() is None
    assert parameters({"n": {"low": 1, "high": 3}})[0].every() == (1, 2, 3)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-05, "1e-05"), (False, "false"), (None, "null"), ([["a"], 2], "[[a],2]"), ([], "[]")],
)
def test_values_as_overrides_spell_them(value, text):
    assert parameters({"x": [value, "other"]})[0].options == (text, "other")


@pytest.mark.parametrize("named", [["tokens"], "[tokens]"])
def test_when_names_an_option_by_its_value_or_as_it_is_spelled(named):
    space = {"site": [["pooled"], ["tokens"]], "x": {"low": 1, "high": 2}}
    space["x"]["when"] = {"site": [named]}
    assert space_mistakes(space) == []
    assert parameters(space)[1].when == {"site": ("[tokens]",)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "at least two options"),
        (["a"], "put one alone into overrides"),
        (["a", "a"], "the option a twice"),
        ([{"a": 1}, "b"], "no override can give: {'a': 1}"),
        (3, "must be a list of options"),
        ({"low": 1}, "must be a list of options"),
        ({"low": "1", "high": 2}, "must be a list of options"),
        ({"low": True, "high": 2}, "must be a list of options"),
        ({"low": float("nan"), "high": 2.0}, "must be a list of options"),
        ({"low": 2, "high": 1}, "low below high, got 2 and 1"),
        ({"low": 0, "high": 1, "log": True}, "low above 0 with log"),
        ({"low": 1, "high": 2, "log": "yes"}, "log: true or false"),
        ({"low": 1, "high": 3, "log": True, "step": 1}, "both log and step"),
        ({"low": 1, "high": 4, "step": 2}, "whole number of steps 2 from low, got 4"),
        ({"low": 0, "high": 1, "step": 0.5}, "write low: 0.0, high: 1.0"),
        ({"low": 1, "high": 4, "step": -1}, "step above 0"),
        ({"low": 1, "high": 4, "stp": 1}, "has no key stp; it has low, high, log, step, when"),
        ({"low": 1, "high": 4, "when": "a"}, "needs when: {key: option}"),
        ({"low": 1, "high": 4, "when": {"b": "a"}}, "must stand before it"),
        ({"low": 1, "high": 4, "when": {"first": "c"}}, "when.first=c is none of a, b"),
        ({"low": 1, "high": 4, "when": {"first": []}}, "names no option of a, b"),
        ({"options": ["a", "b"], "low": 1}, "has no key low; it has options, when"),
    ],
)
def test_what_a_space_may_not_say(given, said):
    found = space_mistakes({"first": ["a", "b"], "x": given})
    assert any(mistake.startswith("space.x ") and said in mistake for mistake in found), found
    assert space_mistakes({"first": ["a", "b"]}) == []


@pytest.mark.parametrize("space", [None, {}, [1], "isotropy"])
def test_a_space_without_keys(space):
    assert "must map at least one key" in space_mistakes(space)[0]
