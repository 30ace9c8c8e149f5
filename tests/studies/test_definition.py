"""Study files: those of the package, those of a user, their grids, and what is wrong in one."""

import re
from pathlib import Path

import pytest
from isotrain.studies.plan import plan_jobs

from isotrain.config.shipped import names
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import (
    grid_methods,
    grid_mistakes,
    load_study,
)

CONF = Path(__file__).parents[2] / "conf" / "study"
RIGHT = {
    "tasks": "{rte: [task=rte]}",
    "methods": "{none: [isotropy=none], mean: [isotropy=mean]}",
    "baseline": "none",
    "seeds": "[0, 1]",
}


@pytest.mark.parametrize("name", names("study"))
def test_each_file_plans_and_opens_with_question_command_and_expectation(name, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")  # else data of the hub would be missed
    study = load_study(name)
    jobs = plan_jobs(study)
    assert len(jobs) == len(study.tasks) * len(study.methods) * len(study.seeds)
    opening = re.match(r"(#.*\n)+", (CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    for part in ("Question:", f"Command:  isotrain run {name}", "Device:", "Expected:"):
        assert part in opening[0]


def write(path, **changes):
    keys = {key: text for key, text in {**RIGHT, **changes}.items() if text is not None}
    path.write_text("\n".join(f"{key}: {text}" for key, text in keys.items()))
    return str(path)


def test_margin_published_scores_and_another_name(tmp_path):
    file = write(
        tmp_path / "my.yaml",
        margin="0.01",
        published="{tasks: {rte: {none: 0.653, mean: 64}}, source: 'Someone 2023, table 2'}",
    )
    study = load_study(file, "other")
    assert (study.name, study.margin) == ("other", 0.01)
    assert study.published == {"rte": {"none": 0.653, "mean": 64}}
    assert study.published_source == "Someone 2023, table 2"
    plain = load_study(write(tmp_path / "plain.yaml"))
    assert (plain.margin, plain.published, plain.published_source) == (None, {}, "")


@pytest.mark.parametrize("name", ["a/b", ""])
def test_names_that_are_no_folder(tmp_path, name):
    with pytest.raises(PlanError, match=rf"names a folder: .*, got '{name}'; give another"):
        load_study(write(tmp_path / "my.yaml"), name)


def test_a_study_yaml_is_called_as_its_folder(tmp_path, monkeypatch):
    for folder in ("heads", "my-heads"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "study.yaml")
    monkeypatch.chdir(tmp_path / "heads")
    assert load_study("study.yaml").name == load_study("../heads/study.yaml").name == "heads"
    with pytest.raises(PlanError, match="got 'my-heads'; give another with --name"):
        load_study("../my-heads/study.yaml")
    assert load_study("../my-heads/study.yaml", "heads").name == "heads"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "{}"}, "no key method; did you mean methods?"),
        ({"seeds": None}, "seeds is missing"),
        ({"baseline": "nome"}, "baseline=nome is not one of the methods; did you mean none?"),
        (
            {"methods": "{none: [], off: []}"},
            "methods has the name False; use letters, digits, _ and . (yaml reads off, on,",
        ),
        ({"methods": "{none: [], a/b: []}"}, "methods has the name 'a/b'"),
        ({"methods": "{none: isotropy=none}"}, "methods.none must be a list of overrides"),
        ({"tasks": "{}"}, "tasks must map at least one name"),
        ({"seeds": "3"}, "seeds must be different whole numbers"),
        ({"overrides": "encoder=tiny"}, "overrides must be a list"),
        ({"tasks": "{rte: [site=[tokens]]}"}, "cannot be read: while parsing"),
        (
            {"methods": None, "grid": "{isotropy: [mean]}"},
            "baseline=none is not one of the methods",
        ),
        ({"grid": "{isotropy: [mean, none]}"}, "methods.none is a method that grid makes, too"),
        ({"grid": "{isotropy: mean}"}, "grid.isotropy must be a list of values"),
        ({"margin": "0"}, "margin is the largest difference that counts as none"),
        ({"margin": "a point"}, "got 'a point'"),
        ({"margin_share": "1.5"}, "margin_share is the largest difference"),
        ({"margin": "0.1", "margin_share": "0.2"}, "state the margin twice"),
        ({"published": "{tasks: {rte: {none: 0.6}}}"}, "published must be {tasks"),
        ({"published": "{tasks: {}, source: ' '}"}, "published must be {tasks"),
        (
            {"published": "{tasks: {rtf: {none: 0.6}}, source: x}"},
            "published.tasks.rtf is not one of the tasks; did you mean rte?",
        ),
        (
            {"published": "{tasks: {rte: {meen: 0.6}}, source: x}"},
            "published.tasks.rte.meen is not one of the methods; did you mean mean?",
        ),
        (
            {"published": "{tasks: {rte: {none: high}}, source: x}"},
            "with scores in the units of the table",
        ),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path, change, said):
    with pytest.raises(PlanError, match=re.escape(said)):
        plan_jobs(load_study(write(tmp_path / "my.yaml", **change)))


def test_every_mistake_at_once(tmp_path):
    with pytest.raises(PlanError) as told:
        load_study(write(tmp_path / "my.yaml", seeds="[]", baseline="x", method="1"))
    assert len(str(told.value).splitlines()) == 3
    assert all(line.startswith("study my: ") for line in str(told.value).splitlines())
    with pytest.raises(PlanError) as told:
        load_study(write(tmp_path / "my.yaml", methods=None))
    assert str(told.value) == "study my: methods is missing"  # and nothing of its baseline


def test_the_product_with_the_last_key_changing_first():
    methods = grid_methods(
        {
            "isotropy": ["cluster_pca"],
            "site": [["pooled"], ["tokens", "layer_3"]],
            "isotropy.removal.strength": [0.5, 1.0],
        }
    )
    assert [name for name, _ in methods] == [
        "cluster_pca_pooled_strength_0.5",
        "cluster_pca_pooled_strength_1.0",
        "cluster_pca_tokens_layer_3_strength_0.5",
        "cluster_pca_tokens_layer_3_strength_1.0",
    ]
    assert methods[2][1] == (
        "isotropy=cluster_pca",
        "site=[tokens,layer_3]",
        "isotropy.removal.strength=0.5",
    )


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("objective.istar.weight", -1.0, "weight_minus_1.0"),
        ("sync", False, "sync_false"),
        ("isotropy.queue_rows", None, "queue_rows_null"),
        ("+isotropy.assign.softness", 1, "softness_1"),
        ("encoder.name", "a/b-c", "name_a_b_c"),
    ],
)
def test_names(key, value, name):
    assert grid_mistakes({key: [value]}) == []
    assert [own for own, _ in grid_methods({key: [value]})] == [name]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ([], "grid must map keys to lists"),
        ({"a b": [1]}, "grid has the key 'a b'"),
        ({"rows": "all"}, "grid.rows must be a list of values such as [1, 2], got 'all'"),
        ({"seed": [0, 1]}, "grid.seed is what seeds says"),
        ({"isotropy": [{"a": 1}]}, "grid.isotropy: {'a': 1} is no value that an override can give"),
        ({"x.y": [1, 1]}, "grid makes 2 methods with the name y_1; give a value once"),
        ({"x.y": ["a/b", "a-b"]}, "grid makes 2 methods with the name y_a_b"),
    ],
)
def test_mistakes(grid, said):
    assert len(found := grid_mistakes(grid)) == 1
    assert said in found[0]
