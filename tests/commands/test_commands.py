"""Commands on runs and folders: what they show, evaluate, cancel, and do not take."""

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from isotrain.cli import main
from isotrain.config.compose import compose_run
from isotrain.model.checkpoint import save_checkpoint
from isotrain.run import folder_of, run
from isotrain.runs.files import write_result
from isotrain.runs.record import owned
from tests.stopped_runs import save_weights

OVERRIDES = [
    *("task=rte", "encoder=tiny", "encoder.width=16", "source=demo", "threads=1", "report=false"),
    *("trainer.accelerator=cpu", "trainer.max_steps=2", "data.n_train=64", "monitor.max_rows=64"),
    *("data.n_dev=64", "data.n_test=64"),
]
WITHOUT_METRICS = [*OVERRIDES, "metric=[]"]


@pytest.mark.parametrize("layer", ["none", "cluster_pca"])
def test_an_evaluated_run_has_its_recorded_scores_or_is_rejected(tmp_path, capsys, layer):
    """The statistics of a layer are those that its last evaluation froze."""
    own = [text for text in OVERRIDES if not text.startswith("isotropy")] + [f"isotropy={layer}"]
    cfg = compose_run([*own, f"output_dir={tmp_path}"])
    scores = run(cfg, own)
    folder = folder_of(cfg)
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]
    assert main(["evaluate", str(folder), "task.max_length=8"]) == 0
    assert "input: 64 of 64 dev examples cut at task.max_length=8; " in capsys.readouterr().out
    of_task = {key: value for key, value in scores.items() if re.match(r"(val|test)/\w+$", key)}
    assert of_task
    assert {key: found[key] for key in of_task} == pytest.approx(of_task, rel=1e-6)

    result = json.loads((folder / "result.json").read_text())
    write_result(folder, result | {"data": "RTE (older)"})
    assert main(["evaluate", str(folder)]) == 2
    assert "was scored on RTE (older), and there is" in capsys.readouterr().err
    assert main(["evaluate", str(folder), "source=demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line.split() for line in lines if line.startswith("test/accuracy (N = 64)"))
    assert float(line[-3]) < float(line[4]) < float(line[-1]), "the score lies in its 95 % CI"
    write_result(folder, result | {"overrides": []})
    assert main(["evaluate", str(folder)]) == 2
    assert "no longer give its configuration" in capsys.readouterr().err


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
            (tmp_path / ".lock").write_text(json.dumps({"pid": process.pid, "host": "another"}))
            assert main(["cancel", str(tmp_path)]) == 2
        assert f"is run by process {process.pid} on machine another" in capsys.readouterr().err
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of two steps."""
    cfg = compose_run([*WITHOUT_METRICS, f"output_dir={tmp_path_factory.mktemp('runs')}"])
    run(cfg, WITHOUT_METRICS)
    return folder_of(cfg)


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
    write_result(folder, result | record)
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
        (["FOLDER", "other"], "evaluate takes one run"),
        (["nowhere"], "no result.json of a training run in nowhere"),
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


def of_another_run(state):
    state["epoch"] = 99


@pytest.mark.parametrize(
    ("change", "save", "why"),
    [
        (not_finite, save_weights, "weights must be finite"),
        (no_weights, save_weights, "last.ckpt is damaged (it has no state_dict)"),
        (lost_head, save_weights, "does not match this FineTuning; give a run with the same encod"),
        (
            of_another_run,
            lambda state, folder: save_checkpoint(state, folder / "last.ckpt"),
            "result.json beside it has another digest, or none); move that file away",
        ),
    ],
)
def test_weights_that_are_none_of_the_run_are_told_in_a_sentence(
    finished, tmp_path, capsys, change, save, why
):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    state = torch.load(folder / "last.ckpt", weights_only=True)
    change(state)
    save(state, folder)
    assert main(["evaluate", str(folder)]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_folder_without_weights_says_why(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    (folder / "last.ckpt").unlink()
    assert main(["evaluate", str(folder)]) == 2
    assert "no last.ckpt (it is gone)" in " ".join(capsys.readouterr().err.split())
    result = json.loads((folder / "result.json").read_text())
    result["config"]["checkpoint"]["final"] = False
    write_result(folder, result)
    assert main(["evaluate", str(folder)]) == 2
    assert "no last.ckpt (checkpoint.final=false)" in " ".join(capsys.readouterr().err.split())
