"""What a file may say of folders and of the environment, and how many runs a plan may have."""

import json
import time

import pytest
import yaml
from isotrain.commands.targets import Named, origin
from isotrain.config.command import MOST_RUNS, check_command, check_jobs
from isotrain.config.foreign import content_of, file_mistakes, job_of_file, plan_mistakes

from isotrain.commands.evaluate import as_recorded
from isotrain.config.compose import RunJob, compose_run
from isotrain.config.shipped import check_sweep
from isotrain.runs.files import make_inside, read_result, replacing
from isotrain.runs.locks import take
from isotrain.runs.shapes import DamagedError
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import load_study
from isotrain.studies.search import load_search

BASE = ("task=wic", "encoder=tiny", "source=demo")
FOLDERS = (
    *("/abs", "../x", "a/../../x", "${output_dir}/../x", "file:x", "${source.root}", "~/x", "~"),
    *("sqlite:////tmp/x.db", "https://host/x", "${oc.env:ISOTRAIN_DATA_DIR}", "x/${init_from}"),
    "${oc.env:ISOTRAIN_X,/abs}",
)
REFERENCES = (
    *("${oc.env:HOME}", "${oc.${x}:HOME}", "a${oc.decode:x}", "${oc.env:ISOTRAIN_X,${y}}"),
    *("$HOME", "a/$HOME/${seed}", "\\${oc.env:HOME}", "${hydra.job.name}", "${.x}"),
)
JOINED = (  # could make any path, with values such as "", "." or "//"
    *("${x}${y}", "${output_dir}/${x}${y}", "${x}/y", "a/.${x}", "a/${x}./y", "sqlite:${x}/y"),
    *("${oc.env:ISOTRAIN_ALLOW}/etc", "${x}~"),
)


@pytest.mark.parametrize("text", [*FOLDERS, *REFERENCES, *JOINED])
def test_a_file_names_no_folder_to_write_to_and_reads_nothing_but_ours(text):
    for content in ({"output_dir": text}, {"logger": {"x": {"version": [text]}}}):
        (mistake,) = file_mistakes(content)
        assert "give it on the command line" in mistake
    is_of_environment = text in REFERENCES
    assert bool(file_mistakes({"source": {"root": text}})) is is_of_environment
    plan = {"overrides": [f"output_dir='{text}'"], "methods": {"a": [f"+logger={{x: '{text}'}}"]}}
    assert len(plan_mistakes(plan)) == 2
    assert len(plan_mistakes({"grid": {"cache_dir": [text]}, "space": {"+x": [text]}})) == 2


@pytest.mark.parametrize(
    "text",
    [
        *("runs", "a/b", "${output_dir}/.cache", "${seed}", "${oc.env:ISOTRAIN_X}", "a=b", ".."),
        *("runs/${seed}", "runs/a-${seed}/b.c", "${oc.env:ISOTRAIN_OUT}/runs", "00:12:00:00"),
        *("${output_dir}/${seed}", "${oc.env:ISOTRAIN_LR,1e-3}", "val/loss"),
    ],
)
def test_what_a_file_may_say(text):
    key = "source" if text == ".." else "output_dir"
    assert file_mistakes({key: text}) == []
    assert plan_mistakes({"overrides": [f"{key}='{text}'"], "grid": {key: [text]}}) == []


def test_a_part_of_a_package_of_the_user_reads_what_it_likes(monkeypatch):
    part = {"function": {"_target_": "mine.rare", "file": "/data/words.txt"}}
    assert len(file_mistakes({"metric": {"rec": part}})) == 1
    monkeypatch.setenv("ISOTRAIN_ALLOW", "mine")
    assert file_mistakes({"metric": {"rec": part}}) == []
    part["function"]["inner"] = {"_target_": "isotrain.geometry.kmeans.KMeans", "to": "/x"}
    assert len(file_mistakes({"metric": {"rec": part}})) == 1
    assert len(file_mistakes({"metric": {"rec": {"_target_": "mine.x", "a": "$HOME"}}})) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("output_dir: /abs", "output_dir=/abs: a file names no folder or address"),
        ("site: ['${oc.env:HOME}']", "site=${oc.env:HOME}: a file may refer to keys, and to"),
        ("hydra: {run: {dir: /abs}}", "hydra is set by isotrain itself"),
        ("hydra: {job: {env_set: {A: b}}}", "hydra is set by isotrain itself"),
        ("hydra: {job_logging: {handlers: {}}}", "hydra is set by isotrain itself"),
        ("metric: {../x: {function: {_target_: isotrain.x}}}", "metric has the name '../x'; use"),
        (
            "objective: {../x: {_target_: isotrain.objectives.cosreg.CosReg}}",
            "method names a folder",
        ),
        ("defaults: [{override /isotropy: ../isotropy/none}]", "defaults are its options"),
        ("defaults: [{override /isotropy: '${oc.env:HOME}'}]", "a file may refer to keys, and to"),
        ("defaults: [//tmp/x]", "defaults are its options"),
        ("defaults: ['/isotropy@hydra.x: none']", "defaults are its options"),
        ("defaults: ['/isotropy/${seed}']", "defaults are its options"),
        ("seed: ${hydra.job.name}", "a file may refer to keys, and to"),
    ],
)
def test_a_configuration_folder(own_files, text, said):
    own = own_files("experiment/mine", f"# @package _global_\n{text}\n")
    _, mistakes = check_command([*BASE, "experiment=mine"], own)
    assert any(said in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize("values", ["[/abs/a, b]", "choice(/abs/a,b)", "'/abs/a,b'"])
def test_a_sweep_of_a_file_names_no_folder(own_files, values):
    own = own_files("sweep/mine", f"output_dir: {values}\n")
    mistakes = check_sweep([*BASE, "sweep=mine"], own, multirun=True)[2]
    assert "sweep=mine: output_dir=/abs/a: a file names no folder" in mistakes[0]


@pytest.mark.parametrize("aliases", [9, 99])
def test_aliases_that_write_out_to_millions_of_values_are_refused(own_files, aliases):
    lines = ["a0: &a0 [1]", *(f"a{k + 1}: &a{k + 1} [*a{k}, *a{k}, *a{k}]" for k in range(30))]
    text = "\n".join([*lines, f"site: [{', '.join(['*a30'] * aliases)}]"])
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"it has [\d,]+ values when its aliases are written out"):
        content_of(text, "mine.yaml")
    own = own_files("experiment/mine", text)
    _, mistakes = check_command([*BASE, "experiment=mine"], own)
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
    with pytest.raises(ValueError, match=r"init_from=.*; change it in the file"):
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
STUDY = {"tasks": {"wic": ["task=wic"]}, "methods": {"a": []}, "baseline": "a", "seeds": [0]}


@pytest.mark.parametrize(
    ("load", "content", "said"),
    [
        (load_study, STUDY | {"grid": {"optimizer.lr": [*range(9000)]}}, "9,000 methods of a grid"),
        (load_study, STUDY | {"seeds": [*range(9000)]}, "9,000 runs"),
        (load_study, STUDY | {"seeds": [99999999999999]}, "whole numbers from 0 to 4294967295"),
        (load_study, STUDY | {"overrides": ["cache_dir=/x"]}, "cache_dir=/x: a file names"),
        (load_search, SEARCH | {"space": {"x": {"low": 1, "high": 10**12}}}, "values of x"),
        (load_search, SEARCH | {"space": {k: [*range(99)] for k in "xyz"}}, "points of a grid"),
        (load_search, SEARCH | {"space": {"x": [1, 2]}, "n_trials": 10**30}, "n_trials, of at"),
        (
            load_search,
            SEARCH | {"space": {"output_dir": ["/x", "y"]}},
            "output_dir=/x: a file names",
        ),
    ],
)
def test_a_plan_has_an_end_and_names_no_folder(tmp_path, load, content, said):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(PlanError, match=said):
        load(str(file))


def test_the_command_line_may_give_a_search_more_trials_than_a_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**SEARCH, "sampler": "tpe", "space": {"x": [1, 2]}}))
    assert load_search(str(file), 3000).n_trials == 3000


def test_files_are_written_below_their_folder(tmp_path):
    root, victim = tmp_path / "root", tmp_path / "elsewhere"
    victim.mkdir()
    make_inside(root, root / "a/b")
    (root / "a/own").symlink_to(root / "a/b")
    make_inside(root, root / "a")
    (root / "a/b/x.part").symlink_to(victim / "new")
    with pytest.raises(
        PermissionError, match=r"x.part leads to .*/elsewhere/new by a link, out of"
    ):
        make_inside(root, root / "a")
    (root / "c").symlink_to(victim)
    with pytest.raises(PermissionError, match="out of"):
        make_inside(root, root / "c/d")
    with pytest.raises(OSError, match="symbolic links"):
        take(root / "a/b/x.part")
    (root / "y").symlink_to(victim / "new")
    (root / "y.part").symlink_to(victim / "new")
    with replacing(root / "y", by_one=True) as file:
        file.write(b"mine")
    assert (root / "y").read_bytes() == b"mine"
    assert not (root / "y").is_symlink()
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize("name", ["study.json", "search.json", "sweep.json"])
def test_a_folder_of_a_plan_reads_nothing_of_the_environment(tmp_path, name, monkeypatch):
    monkeypatch.setenv("COMPANY", "a-value")
    content = {"overrides": ["task=rte", "seed=${oc.env:COMPANY}"], "config_dir": None}
    if name != "sweep.json":
        content |= {"file": "smoke", "name": "smoke", "history": [], "shared": {}, "runs": {}}
    if name == "search.json":
        content = {k: v for k, v in content.items() if k not in ("history", "shared", "runs")}
        content |= {"n_trials": 1, "objective": "", "direction": "", "monitored": None, "data": {}}
    (tmp_path / name).write_text(json.dumps(content))
    for to_read in (True, False):
        with pytest.raises(PlanError, match=r"seed=\$.oc.env:COMPANY.: a file may refer") as error:
            origin(Named(str(tmp_path)), to_read)
        assert "a-value" not in str(error.value)
        origin(Named(str(tmp_path), ["seed=1"]), to_read)  # the command line has its own


def test_a_record_has_values_and_no_references(tmp_path):
    own = {"status": "finished", "config": {"task": {"_target_": "a.b", "x": "${oc.env:HOME}"}}}
    (tmp_path / "result.json").write_text(json.dumps(own))
    with pytest.raises(DamagedError, match="its configuration has references"):
        read_result(tmp_path)
    config = {"optimizer": {"lr": 0.1}, "site": ["pooled"], "logger": {}}
    assert as_recorded("+optimizer.lr=${oc.env:LR}", config) == "+optimizer.lr=0.1"
    assert as_recorded("site=[${oc.env:SITE}]", config) == "site=[pooled]"
    assert as_recorded("seed=${oc.env:ISOTRAIN_SEED}", config) == "seed=${oc.env:ISOTRAIN_SEED}"
    with pytest.raises(ValueError, match="no value that an override can give"):
        as_recorded("logger={x: ${oc.env:HOME}}", config)
