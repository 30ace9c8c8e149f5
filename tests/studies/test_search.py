"""Searches: their yaml files, their spaces, and the plan of one, with every mistake at once."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.config.compose import conf_folder
from isotrain.config.shipped import names
from isotrain.runs.stored import PlanError
from isotrain.studies.search import Search, load_search
from isotrain.studies.search_plan import check_search, plan_search, trial_jobs
from isotrain.studies.space import corners, grid, parameters, space_mistakes

BAD = """
overides: []
overrides: encoder=tiny
space: {optimizer.lr: {low: 2.0, high: 1.0}}
sampler: bayes
pruner: mean
direction: up
startup: 0
warmup: -1
seeds: [0, 0]
objective: 3
margin: 0
"""


def test_what_is_left_out_has_its_default(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("space: {a: [1, 2]}\nn_trials: 3\n")
    assert load_search(str(file)) == Search("mine", parameters({"a": [1, 2]}), 3)
    changed = load_search(str(file), n_trials=9, name="yours")
    assert (changed.name, changed.n_trials) == ("yours", 9)


def test_every_mistake_at_once(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    with pytest.raises(PlanError) as told:
        load_search(str(file), name="a/b")
    lines = str(told.value).splitlines()
    for said in (
        "no key overides; did you mean overrides?",
        "n_trials is missing",
        "overrides must be a list",
        "space.optimizer.lr needs low below high",
        "sampler must be tpe or random or grid, got bayes",
        "pruner must be median or none, got mean",
        "direction must be max or min, got up",
        "startup must be a whole number from 1, got 0",
        "warmup must be a whole number from 0, got -1",
        "seeds must be different whole numbers",
        "objective must be a score such as val/loss, got 3",
        "margin is the largest difference that counts as none",
        "the name 'a/b' must consist of letters",
    ):
        assert sum(said in line for line in lines) == 1, said
    assert len(lines) == 13
    assert all(line.startswith("search bad: ") for line in lines)


def test_a_grid_ends_with_its_points_and_needs_steps(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("space: {a: [1, 2], b: [3, 4]}\nsampler: grid\nn_trials: 9\n")
    assert load_search(str(file)).n_trials == 4
    assert load_search(str(file), n_trials=3).n_trials == 3
    file.write_text("space: {a: {low: 1.0, high: 2.0}}\nsampler: grid\nn_trials: 9\n")
    with pytest.raises(PlanError, match="a grid needs options or a step for a; add step"):
        load_search(str(file))


def test_compare_names_options_that_every_trial_has(tmp_path):
    file = tmp_path / "mine.yaml"
    space = "space: {a: [x, y], b: {options: [1, 2], when: {a: x}}, c: {low: 1, high: 2}}"
    for key, fine in (("a", True), ("b", False), ("c", False), ("d", False)):
        file.write_text(f"{space}\nn_trials: 1\ncompare: {key}\n")
        if fine:
            assert load_search(str(file)).compare == key
        else:
            with pytest.raises(PlanError, match=f"compare={key} is no key of the space"):
                load_search(str(file))


def test_shipped_searches_say_what_every_key_means():
    shipped = [Path(conf_folder()) / "tune" / f"{name}.yaml" for name in names("tune")]
    experiments = sorted((Path(__file__).parents[2] / "experiments").glob("*/search.yaml"))
    assert len(experiments) >= 2
    for file in (*shipped, *experiments):
        search = load_search(str(file))
        assert search.name == (file.parent.name if file in experiments else file.stem)
        lines = file.read_text().splitlines()
        opened = [line.partition(":")[0] for line in lines[:6] if line[2:3] != " "]
        assert opened[:4] == ["# Question", "# Command", "# Device", "# Expected"]
        for line in lines:
            if line[:1].isalpha() and not line.startswith("overrides"):
                assert "#" in line or line == "space:", line


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


@pytest.mark.parametrize("named", [["tokens"], "[tokens]"])
def test_when_names_an_option_by_its_value_or_as_it_is_spelled(named):
    space = {"site": [["pooled"], ["tokens"]], "x": {"low": 1, "high": 2}}
    space["x"]["when"] = {"site": [named]}
    assert space_mistakes(space) == []
    assert parameters(space)[1].when == {"site": ("[tokens]",)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a"], "put one alone into overrides"),
        (["a", "a"], "the option a twice"),
        ([{"a": 1}, "b"], "no override can give: {'a': 1}"),
        ({"low": "1", "high": 2}, "must be a list of options"),
        ({"low": float("nan"), "high": 2.0}, "must be a list of options"),
        ({"low": 2, "high": 1}, "low below high, got 2 and 1"),
        ({"low": 0, "high": 1, "log": True}, "low above 0 with log"),
        ({"low": 1, "high": 3, "log": True, "step": 1}, "both log and step"),
        ({"low": 1, "high": 4, "step": 2}, "whole number of steps 2 from low, got 4"),
        ({"low": 0, "high": 1, "step": 0.5}, "write low: 0.0, high: 1.0"),
        ({"low": 1, "high": 4, "step": -1}, "step above 0"),
        ({"low": 1, "high": 4, "stp": 1}, "has no key stp; it has low, high, log, step, when"),
        ({"low": 1, "high": 4, "when": "a"}, "needs when: {key: option}"),
        ({"low": 1, "high": 4, "when": {"b": "a"}}, "must stand before it"),
        ({"low": 1, "high": 4, "when": {"first": "c"}}, "when.first=c is none of a, b"),
        ({"low": 1, "high": 4, "when": {"first": []}}, "names no option of a, b"),
    ],
)
def test_what_a_space_may_not_say(given, said):
    found = space_mistakes({"first": ["a", "b"], "x": given})
    assert any(mistake.startswith("space.x ") and said in mistake for mistake in found), found
    assert space_mistakes({"first": ["a", "b"]}) == []


def refusal(few, *overrides, **keys):
    few.says(**keys)
    with pytest.raises(PlanError) as told:
        few.plan(*overrides)
    assert not few.runs.exists()
    return str(told.value).splitlines()


def test_the_whole_space_is_judged_with_every_mistake_at_once(few):
    lines = refusal(
        few,
        "encodr=tiny",
        space="{isotropy: [clip, cut_tail], isotropy.n_components: {low: 1, high: 3}, "
        "data.batch_size: {low: 0, high: 32}, trainig.patience: [1, 2]}",
    )
    text = "\n".join(lines)
    assert "no key encodr; did you mean encoder?" in text
    assert (
        "with isotropy=cut_tail: isotropy=cut_tail does not exist; did you mean cut_tails?" in text
    )
    assert "data.batch_size must be at least 1, got 0" in text
    assert "no key trainig.patience" in text
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    ("overrides", "keys", "said"),
    [
        (["optimizer.lr=0.1"], {}, "optimizer.lr is in the space, and is fixed by an override"),
        ([], {"space": "{seed: [1, 2]}"}, "space.seed: a search has its own list, seeds"),
        (["seed=3"], {}, "seed=3 is for a single run; a search has its own list"),
        (
            [],
            {"space": "{report: [true, false]}"},
            "report=true and report=false would compute the same",
        ),
        (
            [],
            {"space": "{task: [rte, wic]}", "overrides": "[encoder=tiny, source=demo]"},
            "scores of several tasks cannot be ranked",
        ),
        (
            [],
            {"objective": "test/accuracy"},
            "the test split is not for choosing; use val/accuracy",
        ),
        ([], {"objective": "val/loss"}, "direction is missing: is val/loss to be max or min?"),
        (["source=local", "source.root=/nowhere"], {}, "/nowhere"),
    ],
)
def test_what_a_search_may_not_be(few, overrides, keys, said):
    assert any(said in line for line in refusal(few, *overrides, **keys))


def test_the_objective_and_its_direction_are_the_tasks_or_the_files(few):
    plan = few.plan()
    assert (plan.objective, plan.direction) == ("val/accuracy", "max")
    few.says(objective="val/loss", direction="min")
    plan = few.plan()
    assert (plan.objective, plan.direction) == ("val/loss", "min")


def test_the_runs_of_a_trial_have_its_values_and_a_seed_each(few):
    few.says(seeds="[2, 5]")
    plan = few.plan("data.batch_size=16")
    jobs, mistakes = trial_jobs(plan, {"optimizer.lr": 0.003})
    assert mistakes == []
    assert [job.cfg.seed for job in jobs] == [2, 5]
    assert {job.cfg.optimizer.lr for job in jobs} == {0.003}
    assert {job.cfg.data.batch_size for job in jobs} == {16}
    assert {job.cfg.threads for job in jobs} == {1}
    assert {job.method for job in jobs} == {"few"}
    assert jobs[1].overrides[-2:] == ["optimizer.lr=0.003", "seed=5"]
    assert {job.search for job in jobs} == {"few"}, "its runs are no results"
    assert plan.folder == few.folder


@pytest.mark.slow
def test_shipped_searches_can_run():
    for name in names("tune"):
        plan = check_search(plan_search(load_search(name), ["source=demo"]))
        assert plan.objective in ("val/accuracy", "val/spearman")
