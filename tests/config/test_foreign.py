"""What a file may say of folders and of the environment, and how many runs a plan may have."""

from __future__ import annotations

import time

import pytest
import yaml

from isotrain.config.command import MOST_RUNS, check_command, check_jobs
from isotrain.config.compose import RunJob, compose_run
from isotrain.config.foreign import file_mistakes, job_of_file, plan_mistakes
from isotrain.config.sweep import check_sweep, content_of
from isotrain.jobs.stored import PlanError
from isotrain.studies.definition import load_study
from isotrain.studies.search import load_search

BASE = ("task=wic", "encoder=tiny", "source=demo")
FOLDERS = ("/abs", "../x", "a/../../x", "${output_dir}/../x", "file:x", "${source.root}")
REFERENCES = ("${oc.env:HOME}", "${oc.${x}:HOME}", "a${oc.decode:x}", "${oc.env:ISOTRAIN_X,${y}}")
JOINED = ("${x}${y}", "a/${x}", "${output_dir}/${x}${y}", "${x}/y")  # could make any path


@pytest.mark.parametrize("text", [*FOLDERS, *REFERENCES, *JOINED])
def test_a_file_names_no_folder_to_write_to_and_reads_nothing_but_ours(text):
    for content in ({"output_dir": text}, {"logger": {"x": {"version": [text]}}}):
        (mistake,) = file_mistakes(content)
        assert "command line" in mistake
    is_of_environment = text in REFERENCES
    assert bool(file_mistakes({"source": {"root": text}})) is is_of_environment
    plan = {"overrides": [f"output_dir='{text}'"], "arms": {"a": [f"+logger={{x: '{text}'}}"]}}
    assert len(plan_mistakes(plan)) == 2
    assert len(plan_mistakes({"grid": {"cache_dir": [text]}, "space": {"+x": [text]}})) == 2


@pytest.mark.parametrize(
    "text", ["runs", "a/b", "${output_dir}/.cache", "${seed}", "${oc.env:ISOTRAIN_X}", "a=b", ".."]
)
def test_what_a_file_may_say(text):
    key = "source" if text == ".." else "output_dir"
    assert file_mistakes({key: text}) == []
    assert plan_mistakes({"overrides": [f"{key}='{text}'"], "grid": {key: [text]}}) == []


@pytest.fixture
def folder(tmp_path):
    """`folder(name, text)`: a configuration folder with that file."""

    def write(name, text):
        file = tmp_path / "mine" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(tmp_path / "mine")

    return write


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("output_dir: /abs", "output_dir=/abs: only the command line names such a folder"),
        ("site: ['${oc.env:HOME}']", "site=${oc.env:HOME}: a file may refer to one key, or to"),
        ("hydra: {run: {dir: /abs}}", "hydra.run is set by isotrain itself"),
        ("hydra: {job: {env_set: {A: b}}}", "hydra.job is set by isotrain itself"),
        ("hydra: {job_logging: {handlers: {}}}", "hydra.job_logging is set by isotrain itself"),
        ("metric: {../x: {function: {_target_: isotrain.x}}}", "metric has the name '../x'; use"),
        ("objective: {../x: {_target_: isotrain.objectives.cosreg.CosReg}}", "arm names a folder"),
        ("defaults: [{override /isotropy: ../isotropy/none}]", "arm names a folder"),
    ],
)
def test_a_configuration_folder(folder, text, said):
    own = folder("experiment/mine", f"# @package _global_\n{text}\n")
    _, mistakes = check_command([*BASE, "experiment=mine"], own)
    assert any(said in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize("values", ["[/abs/a, b]", "choice(/abs/a,b)", "'/abs/a,b'"])
def test_a_sweep_of_a_file_names_no_folder(folder, values):
    own = folder("sweep/mine", f"output_dir: {values}\n")
    mistakes = check_sweep([*BASE, "sweep=mine"], own, multirun=True)[2]
    assert "sweep=mine: output_dir=/abs/a: only the command line" in mistakes[0]


@pytest.mark.parametrize("aliases", [9, 99])
def test_aliases_that_write_out_to_millions_of_values_are_refused(folder, aliases):
    lines = ["a0: &a0 [1]", *(f"a{k + 1}: &a{k + 1} [*a{k}, *a{k}, *a{k}]" for k in range(30))]
    text = "\n".join([*lines, f"site: [{', '.join(['*a30'] * aliases)}]"])
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"it has [\d,]+ values when its aliases are written out"):
        content_of(text, "mine.yaml")
    _, mistakes = check_command([*BASE], folder("experiment/mine", text))
    assert "use fewer aliases" in mistakes[0]
    assert time.monotonic() - began < 10
    assert content_of("a: &a [1]\nb: [*a, *a]\nc: '*'", "mine.yaml")["b"] == [[1], [1]]


def test_a_job_writes_where_it_came_from_or_below_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    home = tmp_path / "home"
    files = [
        home / "wic/none-1/result.json",
        home / "studies/x/jobs/a.json",
        home.parent / "j.json",
    ]

    def judged(output_dir, file, *more):
        cfg = compose_run([*BASE, f"output_dir='{output_dir}'", *more])
        return job_of_file(RunJob(cfg, "none"), file).cfg

    for file in files:
        assert judged(home, file).output_dir == str(home)
        assert judged("runs", file, "cache_dir=/abs").cache_dir == "runs/.cache"
        assert judged("runs", file, "cache_dir=null").cache_dir is None
    for output_dir in ("/abs", "../x", str(home / "wic"), str(tmp_path.parent), "a/../../x"):
        with pytest.raises(ValueError, match="is neither below"):
            judged(output_dir, home / "studies/x/jobs/a.json")
    with pytest.raises(ValueError, match=r"init_from=.*a file may refer to one key"):
        judged("runs", files[0], "init_from='${oc.env:HOME}'")


@pytest.mark.parametrize(
    "values", ["range(0,1e12)", "shuffle(range(0,1000000000))", f"range({MOST_RUNS + 1})"]
)
def test_a_sweep_has_an_end(values):
    began = time.monotonic()
    _, (mistake,) = check_jobs([*BASE, f"seed={values}"], multirun=True)
    assert f"of at most {MOST_RUNS:,} in a plan" in mistake
    _, (mistake,) = check_jobs([*BASE, "seed=range(99)", "threads=range(1,99)"], multirun=True)
    assert mistake.startswith("9,702 runs, of at most")
    assert time.monotonic() - began < 10


SEARCH = {"overrides": [*BASE], "n_trials": 3, "sampler": "grid"}
STUDY = {"tasks": {"wic": ["task=wic"]}, "arms": {"a": []}, "baseline": "a", "seeds": [0]}


@pytest.mark.parametrize(
    ("load", "content", "said"),
    [
        (load_study, STUDY | {"grid": {"optimizer.lr": [*range(9000)]}}, "9,000 arms of a grid"),
        (load_study, STUDY | {"seeds": [*range(9000)]}, "9,000 runs"),
        (load_study, STUDY | {"seeds": [99999999999999]}, "whole numbers from 0 to 4294967295"),
        (load_study, STUDY | {"overrides": ["cache_dir=/x"]}, "cache_dir=/x: only the command"),
        (load_search, SEARCH | {"space": {"x": {"low": 1, "high": 10**12}}}, "values of x"),
        (load_search, SEARCH | {"space": {k: [*range(99)] for k in "xyz"}}, "points of a grid"),
        (load_search, SEARCH | {"space": {"x": [1, 2]}, "n_trials": 10**30}, "n_trials, of at"),
        (load_search, SEARCH | {"space": {"output_dir": ["/x", "y"]}}, "output_dir=/x: only"),
    ],
)
def test_a_plan_has_an_end_and_names_no_folder(tmp_path, load, content, said):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(PlanError, match=said):
        load(str(file))
