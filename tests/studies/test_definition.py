"""Study files: those of the package, those of a user, and what is wrong in one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isotrain.jobs.stored import PlanError
from isotrain.studies.definition import load_study, question_of, study_names
from isotrain.studies.plan import plan_jobs

CONF = Path(__file__).parents[2] / "conf" / "study"
RIGHT = {
    "tasks": "{rte: [task=rte]}",
    "arms": "{none: [isotropy=none], mean: [isotropy=mean]}",
    "baseline": "none",
    "seeds": "[0, 1]",
}


def test_the_studies_of_the_package():
    assert study_names() == sorted(file.stem for file in CONF.glob("*.yaml"))
    assert len(study_names()) >= 2


@pytest.mark.parametrize("name", study_names())
def test_each_file_plans_and_opens_with_question_command_and_expectation(name, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")  # else data of the hub would be missed
    study = load_study(name)
    jobs = plan_jobs(study)
    assert len(jobs) == len(study.tasks) * len(study.arms) * len(study.seeds)
    opening = re.match(r"(#.*\n)+", (CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    for part in ("Question:", f"Command:  isotrain run {name}", "Device:", "Expected:"):
        assert part in opening[0]


def write(path, **changes):
    keys = {key: text for key, text in {**RIGHT, **changes}.items() if text is not None}
    path.write_text("\n".join(f"{key}: {text}" for key, text in keys.items()))
    return str(path)


def test_a_file_of_the_users(tmp_path):
    study = load_study(write(tmp_path / "my.yaml", overrides="['site=[tokens]']"))
    assert study.name == "my"
    assert study.overrides == ("site=[tokens]",)
    assert study.arms == {"none": ("isotropy=none",), "mean": ("isotropy=mean",)}
    assert study.seeds == (0, 1)


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


def test_a_grid_may_stand_in_place_of_arms(tmp_path):
    study = load_study(write(tmp_path / "my.yaml", arms=None, grid="{isotropy: [none, mean]}"))
    assert study.arms == {"none": ("isotropy=none",), "mean": ("isotropy=mean",)}


@pytest.mark.parametrize("name", ["a/b", "", "..", "a b", "-a"])
def test_names_that_are_no_folder(tmp_path, name):
    with pytest.raises(PlanError, match=r"--name .* names a folder"):
        load_study(write(tmp_path / "my.yaml"), name)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("# Question: one,\n#           two\n# Command: x", "one, two"),
        ("# Question: one\noverrides: []", "one"),
        ("overrides: []\n# Question: one", ""),
    ],
)
def test_the_question_of_a_file(text, asks):
    assert question_of(text) == asks


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arm": "{}"}, "no key arm; did you mean arms?"),
        ({"seeds": None}, "seeds is missing"),
        ({"baseline": "nome"}, "baseline=nome is not one of the arms; did you mean none?"),
        (
            {"arms": "{none: [], off: []}"},
            "arms has the name False; use letters, digits, _ and . (yaml reads off, on,",
        ),
        ({"arms": "{none: [], a/b: []}"}, "arms has the name 'a/b'"),
        ({"arms": "{none: isotropy=none}"}, "arms.none must be a list of overrides"),
        ({"arms": "{none: [1]}"}, "arms.none must be a list of overrides"),
        ({"tasks": "{}"}, "tasks must map at least one name"),
        ({"seeds": "[]"}, "seeds must be different whole numbers"),
        ({"seeds": "[1, 1]"}, "seeds must be different whole numbers"),
        ({"seeds": "[-1]"}, "seeds must be different whole numbers"),
        ({"seeds": "[true]"}, "seeds must be different whole numbers"),
        ({"seeds": "3"}, "seeds must be different whole numbers"),
        ({"overrides": "encoder=tiny"}, "overrides must be a list"),
        ({"tasks": "{rte: [site=[tokens]]}"}, "cannot be read: while parsing"),
        ({"tasks": "{rte: ['a=${']}"}, "cannot be read: no viable"),
        ({"arms": None}, "arms is missing"),
        ({"arms": None, "grid": "{isotropy: [mean]}"}, "baseline=none is not one of the arms"),
        ({"grid": "{isotropy: [mean, none]}"}, "arms.none is the name of an arm that grid makes"),
        ({"grid": "{isotropy: mean}"}, "grid.isotropy must be a list of values"),
        ({"margin": "0"}, "margin is the largest difference that counts as none"),
        ({"margin": ".inf"}, "margin is the largest difference"),
        ({"margin": "a point"}, "got 'a point'"),
        ({"margin": "true"}, "margin is the largest difference"),
        ({"margin_share": "1.5"}, "margin_share is the largest difference"),
        ({"margin": "0.1", "margin_share": "0.2"}, "state the margin twice"),
        ({"published": "{rte: {none: 0.6}}"}, "published must be {tasks: {rte: {none"),
        ({"published": "{tasks: {rte: {none: 0.6}}}"}, "published must be {tasks"),
        ({"published": "{tasks: {rte: 0.6}, source: x}"}, "published must be {tasks"),
        ({"published": "{tasks: {}, source: ' '}"}, "published.source must say whose"),
        (
            {"published": "{tasks: {rtf: {none: 0.6}}, source: x}"},
            "published.tasks.rtf is not one of the tasks; did you mean rte?",
        ),
        (
            {"published": "{tasks: {rte: {meen: 0.6}}, source: x}"},
            "published.tasks.rte.meen is not one of the arms; did you mean mean?",
        ),
        (
            {"published": "{tasks: {rte: {none: high}}, source: x}"},
            "published.tasks.rte.none must be a score in the units of the table",
        ),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path, change, said):
    with pytest.raises(PlanError, match=re.escape(said)):
        plan_jobs(load_study(write(tmp_path / "my.yaml", **change)))


@pytest.mark.parametrize("key", ["tasks", "arms"])
def test_a_name_with_a_space_is_no_matter_of_what_yaml_reads(tmp_path, key):
    with pytest.raises(PlanError) as told:
        load_study(write(tmp_path / "my.yaml", **{key: "{none: [], my own: []}"}))
    assert str(told.value) == f"study my: {key} has the name 'my own'; use letters, digits, _ and ."


def test_every_mistake_at_once(tmp_path):
    with pytest.raises(PlanError) as told:
        load_study(write(tmp_path / "my.yaml", seeds="[]", baseline="x", arm="1"))
    assert len(str(told.value).splitlines()) == 3
    assert all(line.startswith("study my: ") for line in str(told.value).splitlines())


@pytest.mark.parametrize("text", ["", "- a\n- b\n"])
def test_a_file_without_keys(tmp_path, text):
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(PlanError, match="tasks"):
        load_study(str(tmp_path / "my.yaml"))


def test_an_unknown_name():
    with pytest.raises(PlanError, match=r"no study smok; did you mean smoke\? \(or give the path"):
        load_study("smok")
    with pytest.raises(PlanError, match=r"no study zzz; there are .*, smoke, .* \(or give"):
        load_study("zzz")
    with pytest.raises(PlanError, match=r"no file nowhere/smok\.yaml; did you mean smoke"):
        load_study("nowhere/smok.yaml")
