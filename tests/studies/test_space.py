"""Spaces in Hydra's grammar: their distributions, conditional keys, corners and errors."""

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from isotrain.runs.stored import PlanError
from isotrain.studies.space import corners, parameters, suggest


@pytest.mark.parametrize(
    ("given", "distribution"),
    [
        ("choice(none, clip)", CategoricalDistribution(("none", "clip"))),
        ("none,clip", CategoricalDistribution(("none", "clip"))),
        ([[], ["istar"], None, 0.5], CategoricalDistribution(("[]", "[istar]", "null", "0.5"))),
        ("range(1, 5)", IntDistribution(1, 4)),
        ("range(0, 9, 4)", IntDistribution(0, 8, step=4)),
        ("range(0.0, 1.0, 0.25)", FloatDistribution(0.0, 0.75, step=0.25)),
        ("range(0.1, 0.4, 0.1)", FloatDistribution(0.1, 0.3, step=0.1)),
        ("interval(1, 5)", FloatDistribution(1.0, 5.0)),
        ("int(interval(1, 5))", IntDistribution(1, 5)),
        ("tag(log, interval(1e-5, 1e-3))", FloatDistribution(1e-5, 1e-3, log=True)),
        ("tag(log, int(interval(1, 12)))", IntDistribution(1, 12, log=True)),
    ],
)
def test_a_text_of_hydras_grammar_is_a_distribution(given, distribution):
    assert parameters({"x": given})[0].distribution == distribution


SPACE = {
    "isotropy": "choice(none, clip, mean)",
    "isotropy=clip,mean": {
        "isotropy.n_components": "range(1, 5)",
        "isotropy=clip": {"isotropy.strength": "choice(0.5, 1.0)"},
    },
    "optimizer.lr": "tag(log, interval(1e-5, 1e-3))",
}


def test_a_conditional_key_is_drawn_beside_its_options_alone():
    study, space = optuna.create_study(sampler=optuna.samplers.RandomSampler(0)), parameters(SPACE)
    drawn = set()
    for _ in range(40):
        trial = study.ask()
        own = suggest(trial, space)
        assert suggest(trial, space) == own, "a trial keeps its values"
        drawn.add((own[0], *(text.partition("=")[0] for text in own[1:])))
    assert drawn == {
        ("isotropy=none", "optimizer.lr"),
        ("isotropy=mean", "isotropy.n_components", "optimizer.lr"),
        ("isotropy=clip", "isotropy.n_components", "isotropy.strength", "optimizer.lr"),
    }


def test_every_option_and_both_ends_are_in_a_corner():
    clip, lr = ("isotropy=clip", "isotropy.n_components=1"), "optimizer.lr=1e-05"
    assert corners(parameters(SPACE)) == [
        ["isotropy=none", lr],
        [*clip, "isotropy.strength=0.5", lr],
        ["isotropy=mean", "isotropy.n_components=1", lr],
        ["isotropy=clip", "isotropy.n_components=4", "isotropy.strength=0.5", lr],
        [*clip, "isotropy.strength=1.0", lr],
        ["isotropy=none", "optimizer.lr=0.001"],
        ["isotropy=mean", "isotropy.n_components=4", "optimizer.lr=0.001"],
    ]


def test_options_beside_an_option_are_in_a_corner_too():
    beside = {"isotropy": "choice(none, clip, mean)"}
    space = {"encoder": "choice(tiny, minilm)", "encoder=tiny": beside}
    assert corners(parameters(space)) == [
        ["encoder=tiny", "isotropy=none"],
        ["encoder=minilm"],
        ["encoder=tiny", "isotropy=clip"],
        ["encoder=tiny", "isotropy=mean"],
    ]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "space must map keys to choice(none, clip), range(1, 5)"),
        ({"x": 0.1}, "got 0.1; put a single value into overrides"),
        ({"x": "glob(*)"}, "space.x must be choice(none, clip)"),
        ({"x": "interval(1"}, "got interval(1 (no viable alternative at input 'interval(1')"),
        ({"x": "tag(lg, interval(0, 1))"}, "space.x must be choice(none, clip)"),
        ({"x": "interval(2, 1)"}, "space.x `low <= high` must hold"),
        ({"x": "tag(log, interval(0, 1))"}, "space.x `low > 0` must hold"),
        ({"x": "range(1, 2)"}, "space.x needs two or more values in steps above 0"),
        ({"x": "range(1, 9, 0)"}, "space.x needs two or more values in steps above 0"),
        ({"a=b": {"x": "1,2"}}, "space.a=b needs options of a before it, got none"),
        (
            {"a": "range(1, 5)", "a=2": {"x": "1,2"}},
            "space.a=2 needs options of a before it, got none",
        ),
        (
            {"a": "b,c", "a=d": {"x": "1,2"}},
            "space.a=d needs options of a before it, got ('b', 'c')",
        ),
        ({"a": "b,c", "a=b": "1,2"}, "space.a=b must map keys to choice(none, clip)"),
        ({"a": "b,c", "a=b": {"x": "1"}}, "space.a=b.x must be choice(none, clip)"),
        (
            {"a": "b,c", "a=b": {"x": "1,2"}, "a=c": {"x": "1,2"}},
            "space.a=c.x is given twice; name several options as isotropy=clip,mean",
        ),
    ],
)
def test_an_error_has_its_place_and_what_was_given(space, message):
    with pytest.raises(PlanError) as error:
        parameters(space)
    assert message in str(error.value)


def test_every_error_is_reported_at_once():
    with pytest.raises(PlanError) as error:
        parameters({"x": 1, "y": "glob(*)", "z": "1,2"})
    assert len(str(error.value).splitlines()) == 2
