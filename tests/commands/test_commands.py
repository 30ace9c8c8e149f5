"""Evaluation of a finished run, and words that a command does not take."""

from __future__ import annotations

import json

import pytest

from isotrain.commands import evaluate, plans
from isotrain.config.compose import compose_run, parse_job
from isotrain.run import folder_of, run

OVERRIDES = [
    *("task=rte", "encoder=tiny", "encoder.width=16", "source=demo", "threads=1", "report=false"),
    *("trainer.accelerator=cpu", "trainer.max_steps=2", "data.n_train=64", "monitor.max_rows=64"),
    *("data.n_dev=64", "data.n_test=64"),
]


def test_an_evaluated_run_has_its_recorded_scores_or_is_rejected(tmp_path, capsys):
    cfg = compose_run([*OVERRIDES, f"output_dir={tmp_path}"])
    scores = run(cfg, "none", OVERRIDES)
    folder = folder_of(cfg, "none")
    capsys.readouterr()
    assert evaluate.main([str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]
    of_task = {key: value for key, value in scores.items() if key.startswith(("val/", "test/"))}
    assert of_task
    assert {key: found[key] for key in of_task} == pytest.approx(of_task, rel=1e-6)

    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"overrides": []}))
    assert evaluate.main([str(folder)]) == 2
    assert "no longer give its configuration" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["rerun=true"], ["--list"], ["--jobs", "4"]])
def test_a_job_file_runs_as_it_is(tmp_path, capsys, more):
    assert plans.run([str(tmp_path / "job.json"), *more]) == 2
    assert "give its file alone" in capsys.readouterr().err


def test_nothing_is_cancelled_below_a_plain_folder(tmp_path, capsys):
    assert plans.cancel([str(tmp_path)]) == 2
    assert "give a folder of one below it" in capsys.readouterr().err


@pytest.mark.parametrize("arm", ["../../x", "a/b", "..", ""])
def test_the_name_of_a_job_is_no_path(arm):
    with pytest.raises(ValueError, match="arm names a folder"):
        parse_job(json.dumps({"arm": arm, "config": {}}))
