"""`status`, `report` and `evaluate` of a run and of a folder of runs, in text and as JSON."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from isotrain.cli import main
from isotrain.config.compose import compose_run
from isotrain.model.checkpoint import save_checkpoint
from isotrain.run import folder_of, run
from tests.stopped_runs import save_weights

RUN = [
    *("task=rte", "encoder=tiny", "encoder.width=16", "source=demo", "threads=1", "report=false"),
    *("trainer.accelerator=cpu", "trainer.max_steps=2", "data.n_train=64", "metric=[]"),
    *("data.n_dev=64", "data.n_test=64"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of two steps."""
    cfg = compose_run([*RUN, f"output_dir={tmp_path_factory.mktemp('runs')}"])
    run(cfg, "none", RUN)
    return folder_of(cfg, "none")


def told(capsys, *line):
    """The exit code of a command, and what it printed."""
    capsys.readouterr()
    code = main([str(word) for word in line])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "state", "code"),
    [
        ({}, "finished", 0),
        ({"status": "running"}, "interrupted", 0),
        ({"status": "failed", "error": "ValueError: too many"}, "failed", 1),
    ],
)
def test_status_of_a_run_is_that_of_its_record(finished, tmp_path, capsys, record, state, code):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | record))
    found, text = told(capsys, "status", folder, "--json")
    content = json.loads(text)
    assert (found, content["state"], content["n_steps"]) == (code, state, 2)
    assert content["scores"] == result["scores"]
    assert content["error"] == record.get("error", "")
    found, text = told(capsys, "status", folder)
    assert (found, f": {state}" in text) == (code, True)
    assert record.get("error", "") in text


def test_status_of_a_folder_lists_its_finished_runs(finished, capsys):
    above = finished.parents[1]
    code, text = told(capsys, "status", above, "--json")
    assert (code, json.loads(text)["runs"]) == (0, [{"folder": str(finished), "state": "finished"}])
    code, text = told(capsys, "status", above)
    assert code == 0
    assert "1 run finished" in text


def test_a_report_as_json_names_its_files_and_the_record(finished, capsys):
    code, text = told(capsys, "report", finished, "--json")
    content = json.loads(text)
    assert (code, content["what"], content["folder"]) == (0, "run", str(finished))
    assert str(finished / "report.html") in content["files"]
    assert content["result"]["status"] == "finished"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["FOLDER", "trainer.max_epochs=2"], "evaluate trains nothing"),
        (["--json", "task=rte"], "--json is of a run"),
        (["FOLDER", "other"], "evaluate takes one run"),
        (["nowhere"], "is no folder of a finished run"),
        (["FOLDER", "encoder.width=32"], "cannot be evaluated so"),
    ],
)
def test_evaluate_says_what_it_takes(finished, capsys, words, why):
    assert main(["evaluate", *(str(finished) if w == "FOLDER" else w for w in words)]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def not_finite(state):
    state["state_dict"]["model.head.linear.bias"] *= float("nan")


def no_weights(state):
    del state["state_dict"]


def lost_head(state):
    del state["state_dict"]["model.head.linear.bias"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (not_finite, "weights must be finite"),
        (no_weights, "last.ckpt is damaged (it has no state_dict)"),
        (lost_head, "does not match this FineTuning; give a run with the same encoder"),
    ],
)
def test_weights_that_are_none_of_the_run_are_told_in_a_sentence(
    finished, tmp_path, capsys, change, why
):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    state = torch.load(folder / "last.ckpt", weights_only=True)
    change(state)
    save_weights(state, folder)
    assert main(["evaluate", str(folder)]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_the_weights_of_another_run_are_not_scored(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    state = torch.load(folder / "last.ckpt", weights_only=True)
    save_checkpoint(state | {"epoch": 99}, folder / "last.ckpt")
    assert main(["evaluate", str(folder)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "result.json beside it has another digest, or none); move that file away" in told


def test_a_folder_without_weights_says_why(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    (folder / "last.ckpt").unlink()
    assert main(["evaluate", str(folder)]) == 2
    assert "its last.ckpt is gone" in " ".join(capsys.readouterr().err.split())
    result = json.loads((folder / "result.json").read_text())
    result["config"]["checkpoint"]["final"] = False
    (folder / "result.json").write_text(json.dumps(result))
    assert main(["evaluate", str(folder)]) == 2
    assert "it kept none (checkpoint.final=false)" in " ".join(capsys.readouterr().err.split())
