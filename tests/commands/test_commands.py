"""Commands on runs and folders: what they show, evaluate, and do not take."""

import json
import re
import shutil

import pytest
from safetensors.torch import load_file, save_file

from isotrain.cli import main
from isotrain.commands.evaluate import evaluated
from isotrain.config.compose import compose_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import write_result
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
    found, _, _ = evaluated(folder, [])
    assert main(["evaluate", str(folder), "task.max_length=8"]) == 0
    assert "input: 64 of 64 dev examples cut at task.max_length=8; " in capsys.readouterr().out
    of_task = {key: value for key, value in scores.items() if re.match(r"(val|test)/\w+$", key)}
    assert of_task
    assert {key: found[key] for key in of_task} == pytest.approx(of_task, rel=1e-6)
    method = {"none": "none", "cluster_pca": "cluster_pca"}[layer]
    about = {"folder": str(folder), "task": "rte", "method": method, "seed": 0}
    for command, expected in (("evaluate", found), ("status", scores), ("report", scores)):
        assert main([command, str(folder), "--json"]) == 0
        content = json.loads(capsys.readouterr().out)
        (shown,) = content["runs"]
        assert content["notes"] == []
        known = {k: None if v != v else v for k, v in expected.items()}
        assert shown.pop("scores") == pytest.approx(known)
        assert shown == about | {"status": "finished"}

    result = json.loads((folder / "result.json").read_text())
    write_result(folder, result | {"data": "RTE (older)"})
    assert main(["evaluate", str(folder)]) == 2
    assert "was scored on RTE (older), and there is" in capsys.readouterr().err
    assert main(["evaluate", str(folder), "source=demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line.split() for line in lines if line.startswith("test/accuracy (N = 64)"))
    assert float(line[-3]) < float(line[4]) < float(line[-1]), "the score lies in its 95 % CI"
    write_result(folder, result | {"overrides": []})
    assert evaluated(folder, [])[0] == found  # as a run from Python
    assert main(["evaluate", str(folder), "source=demo"]) == 2
    assert "was made in Python and records no overrides" in capsys.readouterr().err
    changed = [text for text in result["overrides"] if not text.startswith("task=")]
    write_result(folder, result | {"overrides": changed})
    assert main(["evaluate", str(folder)]) == 2
    assert "no longer give its configuration" in capsys.readouterr().err


def test_other_data_are_scored_by_the_classes_of_the_run(tmp_path, capsys):
    """Not by their own, whose order may be another."""
    for name, words in (("one", ["bad", "good"]), ("two", ["good", "poor"])):
        for split in ("train", "dev", "test"):
            file = tmp_path / name / f"{split}.jsonl"
            file.parent.mkdir(exist_ok=True)
            rows = [{"text": f"w {i}", "label": words[i % 2]} for i in range(8)]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = [t for t in WITHOUT_METRICS if not t.startswith(("task=", "source=", "data."))]
    own = [*small, "task=classification", f"data.path={tmp_path / 'one'}", f"output_dir={tmp_path}"]
    cfg = compose_run(own)
    run(cfg, own)
    folder = folder_of(cfg)
    assert main(["evaluate", str(folder), f"data.path={tmp_path / 'two'}"]) == 2
    assert (
        "label: must be one of bad, good, or a number below 2, got 'poor'"
        in capsys.readouterr().err
    )
    turned = [f"data.path={tmp_path / 'two'}", "task.classes=[good,poor]"]
    assert main(["evaluate", str(folder), *turned]) == 2
    assert "predicts the classes ['bad', 'good'], in this order" in capsys.readouterr().err


@pytest.mark.parametrize("ends", [[], ["task.low=0", "task.high=10"]])
def test_scores_of_another_scale_have_no_loss(tmp_path, ends):
    """The ends that the run found are those of its labels, 0 to 5; of `two` 0 to 10."""
    for name, most in (("one", 5), ("two", 10), ("as_one", 5)):
        for split in ("train", "dev", "test"):
            file = tmp_path / name / f"{split}.jsonl"
            file.parent.mkdir(exist_ok=True)
            label = "grade" if name == "as_one" else "score"
            rows = [{"text": f"w {i}", label: most * i / 7} for i in range(8)]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = [t for t in WITHOUT_METRICS if not t.startswith(("task=", "source=", "data."))]
    own = [*small, "task=regression", f"data.path={tmp_path / 'one'}", f"output_dir={tmp_path}"]
    cfg = compose_run(own)
    scores = run(cfg, own)
    folder = folder_of(cfg)
    alike = evaluated(folder, [f"data.path={tmp_path / 'as_one'}", "task.label=grade"])[0]
    assert alike["val/loss"] == pytest.approx(scores["val/loss"])
    found, _, (note,) = evaluated(folder, [f"data.path={tmp_path / 'two'}", *ends])
    assert {*alike} - {*found} == {"val/loss", "test/loss"}
    assert note == "no loss: scores from 0 to 10 are labels from 0 to 1, in the run 0 to 5"


@pytest.mark.parametrize(("command", "code"), [("status", 0), ("report", 2), ("evaluate", 2)])
def test_a_damaged_record_of_a_run_is_named(tmp_path, capsys, command, code):
    (tmp_path / "result.json").write_text('{"status": "fini')
    assert main([command, str(tmp_path)]) == code
    message = "".join(capsys.readouterr())
    assert f"{tmp_path / 'result.json'} is damaged (" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "smoke", "--trials", "3"], "unrecognized arguments: --trials"),
        (["run", "nowhere"], "studies has no nowhere; it has smoke, template (or give the path of"),
        (["run", "nowhere.yaml"], "No such file or directory: 'nowhere.yaml'"),
        (["status", "RUN", "seed=1"], "unrecognized arguments: seed=1"),
        (["status", "nowhere"], "nowhere is no folder, and there is no runs/studies/nowhere or"),
        (["report", "FOLDER", "--wandb", "mine"], "--wandb sends a run; the runs of a study: log"),
        (["report", "RUN", "--out", "x"], "--out is for the runs below a folder; "),
    ],
)
def test_what_a_command_cannot_do_is_reported(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    for name, file in (("RUN", "result.json"), ("FOLDER", "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text('{"status": "failed"}')
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of two steps."""
    cfg = compose_run([*WITHOUT_METRICS, f"output_dir={tmp_path_factory.mktemp('runs')}"])
    run(cfg, WITHOUT_METRICS)
    return folder_of(cfg)


def message(capsys, *line):
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
    found, text = message(capsys, "status", folder)
    assert (found, f": {state}" in text) == (code, True)
    assert record.get("error", "") in text


def test_status_of_a_folder_lists_its_finished_runs(finished, capsys):
    above = finished.parents[1]
    code, text = message(capsys, "status", above)
    assert code == 0
    assert "1 run finished" in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["FOLDER", "other"], "other cannot be read"),
        (["nowhere"], "no result.json of a training run in nowhere"),
        (["FOLDER", "encoder.width=32"], "cannot be evaluated so"),
    ],
)
def test_evaluate_says_what_it_takes(finished, capsys, words, why):
    assert main(["evaluate", *(str(finished) if w == "FOLDER" else w for w in words)]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("place", ["logger", "trainer.profiler", "callbacks"])
def test_overrides_of_a_record_run_no_code(finished, tmp_path, capsys, place):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    result = json.loads((folder / "result.json").read_text())
    target = f"{place}.x._target_=joblib.load"
    result["overrides"] += [f"+{target}", f"+{place}.x.filename={tmp_path / 'x.pkl'}"]
    write_result(folder, result)
    assert main(["evaluate", str(folder)]) == 2
    assert f"{target} is of a package that a record may not run" in capsys.readouterr().err


def not_finite(state):
    state["model.head.linear.bias"] *= float("nan")


def lost_head(state):
    del state["model.head.linear.bias"]


@pytest.mark.parametrize(
    ("change", "save", "why"),
    [
        (not_finite, save_weights, "weights must be finite"),
        (lost_head, save_weights, "does not match this FineTuning; give a run with the same encod"),
        (
            not_finite,
            lambda state, folder: save_file(state, folder / "weights.safetensors"),
            "is not that in result.json beside it, or there is none); move that file away",
        ),
    ],
)
def test_weights_that_are_none_of_the_run_are_reported_in_a_sentence(
    finished, tmp_path, capsys, change, save, why
):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    state = load_file(folder / "weights.safetensors")
    change(state)
    save(state, folder)
    assert main(["evaluate", str(folder)]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_folder_without_weights_says_why(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    (folder / "weights.safetensors").unlink()
    assert main(["evaluate", str(folder)]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "no weights.safetensors (checkpoint.final=false, or it is gone)" in message
