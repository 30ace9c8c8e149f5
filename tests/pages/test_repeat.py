"""The command that repeats a run: what a shell makes of it is what the run was started with."""

import shlex

import pytest

from isotrain.cli import main
from isotrain.config.compose import content, plain
from isotrain.pages.repeat import python_command, repeat, train_command
from isotrain.runs.files import read_result
from tests.pages.small_run import HOSTILE, write_run

OVERRIDES = ["--config-dir=my conf", "task=text", "task.path=it's $HOME/*.csv", "site=[layer_1]"]


def test_the_command_that_is_printed_trains_the_same_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "own conf" / "metric").mkdir(parents=True)
    (tmp_path / "own conf" / "metric" / "mine.yaml").write_text(
        "mine: {function: {_target_: mine.norm, _partial_: true}}"
    )
    config = {"threads": 2, "metric": {"mine": {"function": {"_target_": "mine.norm"}}}}
    given = [f"--config-dir={tmp_path / 'own conf'}", "task=wic", "metric=[isoscore,mine]"]
    words = shlex.split(train_command(given, config, rerun=True))
    asked = []
    monkeypatch.setattr("isotrain.commands.train._run", lambda *call: asked.append(call))
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert main() == 0
    ((cfg, overrides),) = asked
    assert (cfg.threads, cfg.rerun, list(cfg.metric)) == (2, True, ["isoscore", "mine"])
    assert overrides == [*given, "threads=2", "rerun=true"]


def test_a_run_from_python_is_repeated_from_its_record(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "wic" / "none-01", isotropy=False)
    asked = []
    monkeypatch.setattr("isotrain.runner.run", asked.append)
    exec(python_command(folder))
    assert content(plain(asked[0])).items() >= content(read_result(folder)["config"]).items()
    assert asked[0].rerun


@pytest.fixture
def told(tmp_path):
    folder = write_run(tmp_path / "wic" / "none-01", isotropy=False)

    def of(config=(), **more):
        result = read_result(folder)
        config = {**result["config"], "threads": 2, **dict(config)}
        return repeat(folder, result | more | {"config": config})

    return of


def test_a_finished_run_is_trained_anew_and_another_goes_on(told):
    found = told(overrides=["task=wic", HOSTILE])
    assert shlex.split(found["command"])[2:] == ["task=wic", HOSTILE, "threads=2", "rerun=true"]
    assert (found["is_finished"], found["from_python"]) == (True, False)
    found = told(overrides=["task=wic"], status="failed")
    assert found["command"] == "isotrain train task=wic threads=2"
    assert (found["is_finished"], str(found["folder"])) == (False, "my runs/wic/none-01")
    assert told()["from_python"]


def test_what_was_not_recorded_is_reported(told):
    assert not told(overrides=["task=wic"])["is_hidden"]
    found = told(overrides=["logger.wandb.host=<redacted>"])
    assert (found["is_hidden"], found["hidden"]) == (True, [])
    found = told(config={"logger": {"host": "<redacted>"}})
    assert (found["is_hidden"], found["hidden"]) == (True, ["logger.host"])
    starts = [told(config={"init_from": start})["start"] for start in (None, "runs/a", "/runs/a")]
    assert starts == [None, "runs/a", None]  # an absolute path is one from anywhere
