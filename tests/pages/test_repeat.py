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
def message(tmp_path):
    folder = write_run(tmp_path / "wic" / "none-01", isotropy=False)

    def of(**more):
        result = read_result(folder)
        more = {**more, "config": {**result["config"], "threads": 2, **more.get("config", {})}}
        return str(repeat(folder, result | more))

    return of


def test_a_finished_run_is_trained_anew_and_another_goes_on(message):
    text = message(overrides=["task=wic", HOSTILE])
    assert "isotrain train task=wic" in text
    assert "threads=2 rerun=true" in text
    assert "It trains anew, into a folder in my runs/wic/" in text
    assert HOSTILE not in text
    text = message(overrides=["task=wic"], status="failed")
    assert "isotrain train task=wic threads=2<" in text.replace("\n", "")
    assert "It resumes this run from its last checkpoint, in my runs/wic/none-01/" in text


def test_what_was_not_recorded_is_reported(message):
    assert "Not recorded" not in message(overrides=["task=wic"])
    text = message(overrides=["logger.wandb.host=<redacted>"])
    assert "Not recorded, as it may be secret: a part of the command. " in text
    assert "in the command." in text
    text = message(config={"logger": {"host": "<redacted>"}})
    assert "secret: logger.host. " in text
    assert "in a copy of result.json and give the copy." in text
