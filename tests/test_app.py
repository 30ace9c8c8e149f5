"""The Hydra app: what its options print, which runs it starts, and what it does not take."""

import json
import os
import re

import pytest
import yaml

from isotrain.app import FULL_ERROR, main
from isotrain.commands import train
from isotrain.config.compose import compose_run, plain
from isotrain.runner import folder_of
from isotrain.runs.files import read_result
from tests.processes import printed_by

TINY = ("task=rte", "metric=[]", "trainer.max_steps=1", "threads=1")
SWEPT = ("isotropy=none,mean", "seed=range(2)")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder in which a command is typed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FULL_ERROR, raising=False)
    return tmp_path


@pytest.fixture
def own(here):
    """`own("group/name", text)`: a file below `mine`, for `--config-dir`."""

    def write(name, text):
        file = here / "mine" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return write


# ----------------------------------------------------------------------------- what is printed


def test_cfg_job_is_what_python_composes(here, capsys):
    overrides = ["encoder=tiny", "source=demo", "isotropy=clip", "seed=3", "cache_dir=null"]
    assert main(["--cfg", "job", *overrides]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    cfg = compose_run(overrides)
    cfg.names = {}  # of the chosen files: known when the run starts
    assert printed == plain(cfg) | {"isotropy": printed["isotropy"]}
    assert printed["isotropy"]["seed"] == "${seed}"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--help"], ["isotropy: all_but_the_top, ", "task: boolq, classification, ", "--cfg job"]),
        (["--info", "searchpath"], ["conf", "main"]),
        (["--info", "plugins"], ["IsotrainSweeper", "JoblibLauncher"]),
        (["--info", "defaults", "task=rte"], ["task/rte", "hydra/sweeper/isotrain"]),
        (["--hydra-help"], ["--multirun"]),
        (["--version"], ["Hydra 1.3"]),
        (["--cfg", "hydra", "--package", "hydra.sweeper"], ["only_list: false"]),
        (["task=rte", "--cfg", "job", "--package", "task", "task.form=bi"], ["form: bi"]),
    ],
)
def test_options_of_hydra(here, capsys, option, said):
    assert main(option) == 0
    out = capsys.readouterr().out
    assert [text for text in said if text not in out] == []
    assert list(here.iterdir()) == []


def test_the_program_of_a_checkout_is_the_app():
    """Here it completes what is typed."""
    line = "train.py isotropy=clip"
    given = {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    offered = printed_by("train.py", "-sc", "query=bash", **given).split()
    assert {*offered} == {"isotropy=clip", "isotropy=clip_cluster_pca"}


# ----------------------------------------------------------------------------- what is not taken


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ["sede=1", "task=wicc"],
            "  task=wicc does not exist; did you mean wic?\n  no key sede; did you mean seed?\n",
        ),
        (
            ["-m", "task=rte,wicc", "sede=1,2"],
            "task=wicc does not exist; did you mean wic?\n  no k",
        ),
        (["-m", "data.batch_size=0,8"], "rte-batch_size_0: data.batch_size must be at least 1, g"),
        (["-m", "isotropy=mean,mean"], "would compute the same"),
        (["-m", "isotropy=none,mean", "isotropy=zca"], "isotropy is given 2 times; give all its"),
        (["--config-dir", "none"], "--config-dir none is not a folder"),
        (["--config-dir", "mine", "experiment=wrong"], "Key 'sede' not in 'RunConfig'"),
        (["study=smoke"], "smoke has several runs; start them with: isotrain run smoke"),
        (["-m", "study=smoek"], "studies has no smoek; did you mean smoke?"),
        (["-m", "search=smoke"], "searches has no smoke; it has smoke_search"),
    ],
)
def test_what_cannot_run_is_reported_and_nothing_is_written(
    here, own, capsys, small, line, message
):
    own("experiment/wrong", "# @package _global_\nsede: 3\n")
    keys = {text.partition("=")[0] for text in line}
    given = [text for text in (*small, *TINY) if text.partition("=")[0] not in keys]
    assert main([*given, *line]) == 2
    out, error = capsys.readouterr()
    assert (out, error.partition("\n")[0]) == ("", "isotrain: this cannot run")
    assert message in error
    assert "Traceback" not in error
    assert [path.name for path in here.iterdir()] == ["mine"]


def test_a_key_given_as_an_option_is_an_error_of_hydra(here, capsys):
    assert main(["--seed=3"]) == 2
    assert "unrecognized arguments: --seed=3" in capsys.readouterr().err


def test_with_full_errors_a_traceback_is_shown(here, monkeypatch):
    assert main(["sede=1"]) == 2
    assert FULL_ERROR not in os.environ
    monkeypatch.setenv(FULL_ERROR, "1")
    with pytest.raises(Exception, match="Could not override 'sede'"):
        main(["sede=1"])
    assert os.environ[FULL_ERROR] == "1"


# ----------------------------------------------------------------------------- what runs


def test_a_run_with_a_file_of_the_users(here, own, small):
    own("isotropy/two", "defaults: [all_but_the_top, _self_]\nn_components: 2\n")
    line = [*small, *TINY, "--config-dir", "mine", "isotropy=two", "output_dir=my runs"]
    assert main(line) == 0
    (folder,) = here.glob("my runs/rte/two-*")
    record = read_result(folder)
    assert (record["status"], record["config"]["isotropy"]["n_components"]) == ("finished", 2)
    assert record["overrides"] == [f"--config-dir={here / 'mine'}", *small, *TINY, *line[-2:]]
    assert {path.name for path in here.iterdir()} == {"mine", "my runs"}  # nothing of Hydra's
    cfg = compose_run([*small, *TINY, *line[-2:]], "mine")
    assert folder_of(cfg).resolve() == folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory, small):
    """The folder in which a sweep of four runs was given, and what it printed."""
    place = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main(["-m", *small, *TINY, *SWEPT]) == 0
    return place


def test_a_sweep_runs_every_combination_and_ends_with_a_table(swept):
    (folder,) = swept.glob("runs/sweeps/*")
    assert re.fullmatch(r"isotropy-seed-[0-9a-f]{8}", folder.name)
    assert {"study.json", "table.md", "study.html", "logs"} <= {p.name for p in folder.iterdir()}
    records = [read_result(file.parent) for file in swept.glob("runs/rte/*/result.json")]
    assert {(one["method"], one["config"]["seed"], one["status"]) for one in records} == {
        (method, seed, "finished") for method in ("none", "mean") for seed in (0, 1)
    }
    assert {one["config"]["study"] for one in records} == {folder.name}
    logs = {path.stem.rpartition("-")[0] for path in (folder / "logs").iterdir()}
    assert logs == {f"rte-{method}-seed{seed}" for method in ("none", "mean") for seed in (0, 1)}


@pytest.mark.parametrize("where", ["default", "elsewhere"])
def test_a_sweep_given_again_trains_nothing_and_its_tables_may_lie_elsewhere(
    swept, small, monkeypatch, capsys, where
):
    monkeypatch.chdir(swept)
    before = {file: file.stat().st_mtime_ns for file in swept.glob("runs/rte/*/*")}
    place = ["hydra.sweep.dir=elsewhere"] if where == "elsewhere" else []
    assert main(["-m", *small, *TINY, *SWEPT, *place]) == 0
    assert {file: file.stat().st_mtime_ns for file in swept.glob("runs/rte/*/*")} == before
    folder = "elsewhere" if place else "runs/sweeps/isotropy-seed-"
    said = capsys.readouterr().out
    assert f"4 runs, 4 finished before, 0 to do, 1 at a time; {folder}" in said
    assert f"these tables again: isotrain report {folder}" in said
    assert "(too few seeds)" in said
    assert (swept / "elsewhere" / "table.md").is_file() == bool(place)
    assert len(list(swept.glob("runs/sweeps/*"))) == 1


@pytest.mark.parametrize(
    ("line", "jobs"),
    [
        (
            ["seed=0,1", "task=choice(rte,stsb)"],
            ["rte-none-seed0", "stsb-none-seed0", "rte-none-seed1", "stsb-none-seed1"],
        ),
        (
            ["seed=4", "isotropy=glob(frozen_*)"],
            ["rte-frozen_mean-seed4", "rte-frozen_zca-seed4"],
        ),
        (
            ["isotropy=mean,zca", "optimizer.lr=1e-3,2e-3"],
            [f"rte-{name}_lr_{lr}-seed0" for name in ("mean", "zca") for lr in ("0.001", "0.002")],
        ),
        (["experiment=several"], ["rte-mean-seed0", "rte-mean-seed1"]),
        (["experiment=several", "seed=5"], ["rte-mean-seed5"]),
    ],
)
def test_the_runs_of_a_sweep(here, own, capsys, small, line, jobs):
    """Commas, functions of Hydra, and the values that a file gives to the sweeper."""
    several = "hydra: {sweeper: {params: {seed: '0,1'}}}"
    layer = "defaults: [{override /isotropy: mean}]"
    own("experiment/several", f"# @package _global_\n{layer}\n{several}\n")
    keys = {text.partition("=")[0] for text in line}
    given = [text for text in (*small, *TINY) if text.partition("=")[0] not in keys]
    options = ["--config-dir", "mine", "hydra.sweeper.only_list=true"]
    assert main(["-m", *given, *line, *options]) == 0
    found = re.findall(r"^(\S+) \(to do\): ", capsys.readouterr().out, re.MULTILINE)
    assert found == jobs
    assert [path.name for path in here.iterdir()] == ["mine"]


def test_a_sweeper_of_hydra_works_too_and_gets_the_score(here, small, monkeypatch):
    returned, original = [], train.train

    def noted(cfg):
        returned.append(original(cfg))
        return returned[-1]

    monkeypatch.setattr(train, "train", noted)
    assert main(["-m", *small, *TINY, "seed=0,1", "hydra/sweeper=basic"]) == 0
    records = [read_result(file.parent) for file in here.glob("runs/rte/*/result.json")]
    scores = {one["config"]["seed"]: one["scores"]["val/accuracy"] for one in records}
    assert returned == [scores[0], scores[1]]
    assert {one["config"]["study"] for one in records} == {None}


@pytest.mark.slow
def test_joblib_launches_runs_side_by_side(here, small, capfd):
    line = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1"]
    assert main(["-m", *small, *TINY, *line]) == 0
    out = capfd.readouterr().out
    assert "2 runs, 0 finished before, 2 to do, 2 at a time" in out
    records = [json.loads(file.read_text()) for file in here.glob("runs/rte/*/result.json")]
    assert [one["status"] for one in records] == ["finished"] * 2
