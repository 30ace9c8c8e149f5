"""Evaluation of a finished run, and words that a command does not take."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

from isotrain.cli import main
from isotrain.config.compose import RunJob, compose_run, parse_job, write_job
from isotrain.run import folder_of, run
from isotrain.runs.record import owned

OVERRIDES = [
    *("task=rte", "encoder=tiny", "encoder.width=16", "source=demo", "threads=1", "report=false"),
    *("trainer.accelerator=cpu", "trainer.max_steps=2", "data.n_train=64", "monitor.max_rows=64"),
    *("data.n_dev=64", "data.n_test=64"),
]


@pytest.mark.parametrize("layer", ["none", "cluster_pca"])
def test_an_evaluated_run_has_its_recorded_scores_or_is_rejected(tmp_path, capsys, layer):
    """The statistics of a layer are those that its last evaluation froze."""
    own = [text for text in OVERRIDES if not text.startswith("isotropy")] + [f"isotropy={layer}"]
    cfg = compose_run([*own, f"output_dir={tmp_path}"])
    scores = run(cfg, layer, own)
    folder = folder_of(cfg, layer)
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]
    of_task = {key: value for key, value in scores.items() if re.match(r"(val|test)/\w+$", key)}
    assert of_task
    assert {key: found[key] for key in of_task} == pytest.approx(of_task, rel=1e-6)

    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"data": "RTE (older)"}))
    assert main(["evaluate", str(folder)]) == 2
    assert "was scored on RTE (older), and there is" in capsys.readouterr().err
    assert main(["evaluate", str(folder), "source=demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line.split() for line in lines if line.startswith("test/accuracy (N = 64)"))
    assert float(line[-3]) < float(line[4]) < float(line[-1]), "the score lies in its 95 % CI"
    (folder / "result.json").write_text(json.dumps(result | {"overrides": []}))
    assert main(["evaluate", str(folder)]) == 2
    assert "no longer give its configuration" in capsys.readouterr().err


def test_a_job_whose_data_have_changed_since_it_was_planned_is_rejected(tmp_path, capsys):
    cfg = compose_run([*OVERRIDES, f"output_dir={tmp_path / 'runs'}"])
    write_job(RunJob(cfg, "none", data="RTE (planned)"), tmp_path / "job.json")
    assert main(["run", str(tmp_path / "job.json")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "was planned on RTE (planned), and there is" in told
    assert not (tmp_path / "runs").exists()


def test_nothing_is_cancelled_below_a_plain_folder(tmp_path, capsys):
    assert main(["cancel", str(tmp_path)]) == 2
    assert "give a folder of one below it" in capsys.readouterr().err


def test_cancel_stops_a_run_at_work_with_a_checkpoint(tmp_path, capsys, eventually):
    own = [text for text in OVERRIDES if not text.startswith("trainer.max_steps")]
    line = [sys.executable, "-m", "isotrain", "train", *own, f"output_dir={tmp_path}"]
    line += ["trainer.max_epochs=400", "metric=[]", "checkpoint.every_steps=1"]
    process = subprocess.Popen(line)
    eventually(lambda: any(tmp_path.glob("rte/*/resume.ckpt")))
    (file,) = tmp_path.glob("rte/*/resume.ckpt")
    assert main(["cancel", str(file.parent)]) == 0
    assert process.wait(60) == 128 + signal.SIGTERM
    told = capsys.readouterr().out
    assert told == f"stopping process {process.pid}\n{file.parent}: stopped\n"
    assert json.loads((file.parent / "result.json").read_text())["status"] == "interrupted"
    assert file.is_file()


def test_cancel_signals_no_process_of_this_number_for_one_of_another_machine(tmp_path, capsys):
    process = subprocess.Popen(["sleep", "60"])
    try:
        with owned(tmp_path, tmp_path):
            (tmp_path / ".lock").write_text(f"{process.pid} another")
            assert main(["cancel", str(tmp_path)]) == 2
        assert f"is run by process {process.pid} on machine another" in capsys.readouterr().err
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("arm", ["../../x", "..", ""])
def test_the_name_of_a_job_is_no_path(arm):
    with pytest.raises(ValueError, match="arm names a folder"):
        parse_job(json.dumps({"arm": arm, "config": {}}))


@pytest.mark.parametrize("command", ["status", "report", "evaluate"])
def test_a_damaged_record_of_a_run_is_named(tmp_path, capsys, command):
    (tmp_path / "result.json").write_text('{"status": "fini')
    assert main([command, str(tmp_path)]) == 2
    assert f"{tmp_path / 'result.json'} is damaged (" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "smoke", "--trials", "3"], "smoke is a study, which takes no --trials"),
        (["status", "RUN", "seed=1"], "is a run, which takes no key=value"),
        (["status", "RUN", "--name", "x", "--trials", "3"], "which takes no --name, --trials"),
        (["status", "RUN", "--jobs", "2"], "--jobs is of a plan"),
        (["status", "FOLDER", "--watch", "--json"], "give one of them"),
        (["cancel", "PLAN", "--name", "x"], "is a sweep's folder, which takes no --name"),
        (["run", "RUN"], "RUN is a run; give the folder of a study, search or sweep"),
        (["run", "job.json", "--name", "x"], "give its file alone"),
        (["evaluate", "task=rte", "--json"], "--json is of a run"),
        (["evaluate", "task=rte", "trainer.max_epochs=3"], "evaluate trains nothing"),
    ],
)
def test_an_option_that_says_nothing_of_the_target_is_rejected(tmp_path, capsys, words, told):
    for name, file in (("RUN", "result.json"), ("FOLDER", "x"), ("PLAN", "sweep.json")):
        (tmp_path / name).mkdir()
        content = {"status": "failed", "overrides": [], "config_dir": None}
        (tmp_path / name / file).write_text(json.dumps(content))
    assert main([str(tmp_path / word) if word.isupper() else word for word in words]) == 2
    assert told in capsys.readouterr().err
