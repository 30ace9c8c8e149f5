"""The yaml file of a search: what it says, and every mistake in it at once."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from isotrain.config.compose import conf_folder
from isotrain.jobs.stored import PlanError
from isotrain.studies.search import Search, load_search, search_names

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


def test_what_is_left_out_has_the_value_that_the_files_show(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("space: {a: [1, 2]}\nn_trials: 3\n")
    search = load_search(str(file))
    assert search.name == "mine"
    assert search.n_trials == 3
    for field in fields(Search):
        if field.default is not MISSING:
            assert getattr(search, field.name) == field.default
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


def test_an_empty_name_is_no_name():
    with pytest.raises(PlanError, match="the name '' must consist of letters"):
        load_search("smoke_search", name="")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("smoke_serch", "there is no search smoke_serch; did you mean smoke_search?"),
        ("nowhere/mine.yaml", "there is no file nowhere/mine.yaml"),
    ],
)
def test_an_unknown_search(name, said):
    with pytest.raises(PlanError, match=said):
        load_search(name)


@pytest.mark.parametrize("text", ["space: [", "- a", "3"])
def test_a_file_that_is_no_search(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(PlanError):
        load_search(str(file))


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
    assert {"clip_strength", "istar_weight", "smoke_search"} <= set(search_names())
    for name in search_names():
        search = load_search(name)
        assert search.name == name
        lines = (Path(conf_folder()) / "tune" / f"{name}.yaml").read_text().splitlines()
        opened = [line.partition(":")[0] for line in lines[:6] if line[2:3] != " "]
        assert opened[:4] == ["# Question", "# Command", "# Device", "# Expected"]
        for line in lines:
            if line[:1].isalpha() and not line.startswith("overrides"):
                assert "#" in line or line == "space:", line
