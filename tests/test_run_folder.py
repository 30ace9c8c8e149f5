"""The folder of a run without a run: what is kept of an earlier try, and what is written."""

from __future__ import annotations

import json

import pytest

from isotrain import run_folder
from isotrain.run_folder import FOLDERS_OF_A_TRY, OF_A_TRY, RunFolder
from isotrain.runs.files import read_result, write_json
from isotrain.runs.record import CannotRunError
from isotrain.training.callbacks.non_finite import NonFiniteError

FACTS = {
    "n_parameters": {"trainable": 1, "total": 2},
    "n_rows": {"train": 3, "dev": 2, "test": 0},
    "monitor": "val/accuracy",
    "headline": ["isoscore"],
}
POINT = {"step": 4, "n_bytes": 5}
SELECTION = {"select": "last", "selected_step": 2}


@pytest.fixture
def folder(composed, small, tmp_path):
    """A folder that was never run in, owned."""
    cfg = composed(*small, "task=rte", "threads=1", f"output_dir={tmp_path}")
    made = RunFolder(cfg, "none", "rows of today")
    assert not made.path.exists(), "named, not made"
    with made.owned():
        yield made


def names(folder):
    return {path.name for path in folder.path.iterdir()} - {".lock"}


def litter(folder):
    for name in (*OF_A_TRY, "notes of mine.txt"):
        (folder.path / name).write_text("{}")
    for name in FOLDERS_OF_A_TRY:
        (folder.path / name).mkdir()
        (folder.path / name / "file").touch()


def test_a_new_try_clears_the_one_before_and_nothing_else(folder):
    litter(folder)
    folder.begin(FACTS, None)
    assert names(folder) == {"config.yaml", "result.json", "notes of mine.txt"}
    result = read_result(folder.path)
    assert result == folder.record
    assert result["status"] == "running"
    assert result["data"] == "rows of today"
    assert result["n_rows"] == FACTS["n_rows"]


def test_a_try_that_goes_on_keeps_what_it_goes_on_from(folder, capsys):
    litter(folder)
    folder.begin(FACTS, POINT)
    kept = {*OF_A_TRY, *FOLDERS_OF_A_TRY, "config.yaml", "notes of mine.txt"} - {"fault.json"}
    assert names(folder) == kept
    assert all((folder.path / name / "file").is_file() for name in FOLDERS_OF_A_TRY)
    assert read_result(folder.path)["resumed_after_step"] == 4
    assert "going on after step 4" in capsys.readouterr().out


def test_a_try_that_goes_on_keeps_the_code_of_those_before(folder, monkeypatch):
    def go_on(git, point):
        monkeypatch.setattr(folder, "now", {"isotrain": "0.1.0", "git": git})
        folder.begin(FACTS, point)
        kept = [read_result(folder.path)["environment"]]
        kept += read_result(folder.path)["earlier_environments"]
        return [environment["git"] for environment in kept]

    assert go_on("one", None) == ["one"]
    assert go_on("one", POINT) == ["one"]
    assert go_on("two", POINT) == ["two", "one"]
    assert go_on("two", POINT) == ["two", "one"]
    assert go_on("one", POINT) == ["one", "one", "two"]
    assert go_on("three", None) == ["three"], "anew"


def test_a_finished_run_has_the_last_scores_and_no_checkpoint_to_resume(folder):
    folder.begin(FACTS, None)
    (folder.path / "resume.ckpt").touch()
    rows = [{"step": 0, "val/accuracy": 0.5, "train/loss": 1.0}, {"step": 2, "val/accuracy": 0.75}]
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert folder.stored() == {}
    (folder.path / "best.ckpt").touch()
    folder.finished(2, {"total": 1.0}, SELECTION)
    assert folder.record["scores"] == {"val/accuracy": 0.75}
    assert folder.record.items() >= {**SELECTION, "degenerate": False}.items()
    assert not {"resume.ckpt", "best.ckpt"} & names(folder)
    assert folder.stored() == {"val/accuracy": 0.75}
    assert folder.resume_point() is None


def test_a_collapsed_run_is_recorded_with_the_reason(folder):
    folder.begin(FACTS, None)
    row = {"step": 2, "val/accuracy": 0.5, "val/majority_share": 1.0, "holdout/accuracy": 0.5}
    (folder.path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    folder.finished(2, {"total": 1.0}, SELECTION)
    stored = read_result(folder.path)
    assert stored["degenerate"] is True
    assert stored["degenerate_reason"] == "100 % of the predictions on dev are one class"
    assert stored["scores"]["holdout/accuracy"] == 0.5


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RuntimeError("on purpose"), "failed", ""),
        (KeyboardInterrupt(), "interrupted", "starts again"),
        (SystemExit(143), "interrupted", "starts again"),
    ],
)
def test_how_a_run_ended_is_written_down(folder, capsys, error, status, said):
    folder.begin(FACTS, None)
    capsys.readouterr()
    folder.failed(error)
    assert read_result(folder.path)["status"] == status
    assert read_result(folder.path)["error"].startswith(type(error).__name__)
    assert not (folder.path / "fault.json").exists()
    assert (said in capsys.readouterr().out) if said else not capsys.readouterr().out


def test_a_fault_has_its_report(folder):
    folder.begin(FACTS, None)
    folder.failed(NonFiniteError("the loss is nan", {"rows": [3]}))
    assert json.loads((folder.path / "fault.json").read_text()) == {"rows": [3]}


def test_data_of_another_day_are_refused(folder):
    write_json(folder.path / "result.json", {"status": "failed", "data": "rows of yesterday"})
    assert folder.resume_point() is None, "nothing to go on from"
    (folder.path / "resume.ckpt").touch()
    with pytest.raises(CannotRunError, match="begun on rows of yesterday, which is rows of today"):
        folder.resume_point()


def test_other_processes_write_nothing(composed, small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_folder, "process_rank", lambda: 1)
    cfg = composed(*small, "task=rte", "threads=1", f"output_dir={tmp_path / 'runs'}")
    second = RunFolder(cfg, "none", "rows of today")
    with second.owned():
        second.begin(FACTS, None)
        second.failed(NonFiniteError("the loss is nan", {}))
    second.finished(2, {}, SELECTION)
    assert not (tmp_path / "runs").exists()
    assert capsys.readouterr().out == ""
