"""The folder of a run without a run: what is kept of an earlier try, and what is written."""

import hashlib
import json

import pytest

from isotrain.config.compose import run_folder
from isotrain.runs.files import ChangedError, DamagedError, read_result
from isotrain.runs.folder import FOLDERS_OF_A_TRY, OF_A_TRY, RunFolder
from isotrain.runs.locks import Owner, launch_id
from tests.judge import errors_of

FACTS = {
    "n_parameters": {"trainable": 1, "total": 2},
    "n_rows": {"train": 3, "dev": 2, "test": 0},
    "monitor": "val/accuracy",
    "headline": ["isoscore"],
}
OUTCOME = {"steps": 2, "select": "last", "selected_step": 2}


@pytest.fixture
def folder(composed, small, tmp_path):
    """A folder that was never run in, owned."""
    cfg = composed(*small, "task=rte", "threads=1", f"output_dir={tmp_path}")
    made = RunFolder(cfg, "rows of today")
    assert not made.path.exists(), "named, not made"
    with made.owned():
        yield made


def names(folder):
    return {path.name for path in folder.path.iterdir()} - {".lock"}


def litter(folder):
    for name in (*OF_A_TRY, "notes of mine.txt"):
        (folder.path / name).write_text('{"status": "interrupted"}')
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


@pytest.mark.parametrize(
    ("keys", "method"),
    [
        (("isotropy=zca",), "zca"),
        (("isotropy=zca", "objective=[cosreg,istar]"), "zca-cosreg-istar"),
        (("objective=[cosreg]",), "cosreg"),
        (("isotropy=zca", "method=mine"), "mine"),
    ],
)
def test_the_configuration_names_the_method_and_the_plan(composed, tmp_path, keys, method):
    cfg = composed("task=rte", "threads=1", "source=demo", f"output_dir={tmp_path}", *keys)
    cfg.study, cfg.search = ("all", "lr") if method == "mine" else (None, None)
    folder = RunFolder(cfg, "rows of today")
    assert folder.path.parent == tmp_path / "rte"
    assert folder.path.name.rpartition("-")[0] == method
    folder.path.mkdir(parents=True)
    folder.begin(FACTS, None)
    record = read_result(folder.path)
    plan = ("all", "lr") if method == "mine" else ("", "")
    assert (record["method"], record["study"], record["search"]) == (method, *plan)


def test_names_of_a_plan_change_no_hash(composed):
    plain = composed("source=demo", "threads=1")
    named = composed("source=demo", "threads=1", "method=none")
    named.study, named.search, named.trial = "all", "lr", 3
    assert run_folder(named, "rows") == run_folder(plain, "rows")


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 151, "a b"])
def test_a_method_that_names_no_folder_is_an_error(composed, name):
    cfg = composed("source=demo", f"method='{name}'")
    assert any("method names a folder" in text for text in errors_of(cfg))


def test_a_try_that_goes_on_keeps_what_it_goes_on_from(folder):
    litter(folder)
    folder.begin(FACTS, 4)
    kept = {*OF_A_TRY, *FOLDERS_OF_A_TRY, "config.yaml", "notes of mine.txt"} - {"fault.json"}
    assert names(folder) == kept
    assert all((folder.path / name / "file").is_file() for name in FOLDERS_OF_A_TRY)
    assert read_result(folder.path)["resumed_after_step"] == 4


def test_a_try_that_goes_on_keeps_the_code_of_those_before(folder, monkeypatch):
    def go_on(git, step):
        monkeypatch.setattr(folder, "now", {"isotrain": "0.1.0", "git": git})
        notes.append(folder.begin(FACTS, step))
        kept = [read_result(folder.path)["environment"]]
        kept += read_result(folder.path)["earlier_environments"]
        return [environment["git"] for environment in kept]

    notes = []
    assert go_on("one", None) == ["one"]
    assert go_on("one", 4) == ["one"]
    assert go_on("two", 4) == ["two", "one"]
    assert go_on("two", 4) == ["two", "one"]
    assert go_on("one", 4) == ["one", "one", "two"]
    assert go_on("three", None) == ["three"], "anew"
    changed = "; the code has changed since (git)"
    assert notes == ["", "", changed, "", changed, ""]


def test_a_finished_run_has_the_last_scores_and_no_checkpoint_to_resume(folder):
    folder.begin(FACTS, None)
    (folder.path / "resume.ckpt").touch()
    rows = [{"step": 0, "val/accuracy": 0.5, "train/loss": 1.0}, {"step": 2, "val/accuracy": 0.75}]
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not folder.is_finished()
    assert folder.may_resume()
    for name in ("best.ckpt", "resume.json"):
        (folder.path / name).touch()
    assert folder.scores() == {"val/accuracy": 0.75}
    folder.finished(OUTCOME | {"scores": folder.scores()})
    assert folder.record.items() >= OUTCOME.items()
    assert not {"resume.ckpt", "resume.json", "best.ckpt"} & names(folder)
    folder.record = {}
    assert folder.is_finished()
    assert folder.record["scores"] == {"val/accuracy": 0.75}
    assert folder.note.startswith("finished before; rerun=true trains again")
    assert not folder.may_resume()


@pytest.mark.parametrize("retry", [("SLURM_RESTART_COUNT", "1"), ("ISOTRAIN_JOB", "task 1")])
def test_a_requeued_job_and_a_task_tried_again_resume_their_own_attempt(folder, monkeypatch, retry):
    monkeypatch.setenv("ISOTRAIN_JOB", "task 1")
    folder.cfg.rerun = True
    folder.begin(FACTS, None)
    (folder.path / "resume.ckpt").touch()
    monkeypatch.setenv("ISOTRAIN_JOB", "task 2")
    assert not folder.may_resume()
    monkeypatch.setenv(*retry)
    assert folder.may_resume()
    folder.finished(OUTCOME | {"scores": {}})
    assert not folder.is_finished()
    assert not folder.may_resume()


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (RuntimeError("on purpose"), "failed", "RuntimeError: on purpose"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt: stopped by the second Ctrl-C"),
        (SystemExit(143), "interrupted", "SystemExit: 143"),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (SystemExit("no"), "failed", "SystemExit: no"),
        (SystemExit(), "failed", "SystemExit: "),
        (SystemExit(1), "interrupted", "KeyboardInterrupt: stopped by the second Ctrl-C"),
    ],
)
def test_how_a_run_ended_is_written_down(folder, error, status, message):
    if error.args == (1,):
        error.__context__ = KeyboardInterrupt()  # as Lightning exits
    folder.begin(FACTS, None)
    folder.failed(error)
    assert read_result(folder.path)["status"] == status
    assert read_result(folder.path)["error"].startswith(message)
    assert not (folder.path / "fault.json").exists()


def test_records_that_a_checkpoint_knows_of_must_be_there(folder):
    empty, known = (hashlib.sha256(content).hexdigest() for content in (b"", b"xxxx"))
    folder.check_records(0, empty)
    (folder.path / "metrics.jsonl").write_bytes(b"xxxxx")
    folder.check_records(4, known)
    for content in (b"xxx", b"xxyx"):
        (folder.path / "metrics.jsonl").write_bytes(content)
        with pytest.raises(DamagedError, match="its first 4 bytes are not what was written"):
            folder.check_records(4, known)


def test_a_new_attempt_has_no_snapshots_of_an_earlier_one_behind_a_link(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "step_00000100.npz").touch()
    (folder.path / "snapshots").symlink_to(elsewhere)
    folder.begin(FACTS, 4)
    assert (folder.path / "snapshots").is_symlink()
    folder.begin(FACTS, None)
    assert not (folder.path / "snapshots").exists()
    assert list(elsewhere.iterdir())


def test_other_processes_write_nothing(composed, small, tmp_path):
    cfg = composed(*small, "task=rte", "threads=1", f"output_dir={tmp_path / 'runs'}")
    second = RunFolder(cfg, "rows of today", is_first=False)
    with second.owned():
        second.begin(FACTS, None)
        second.failed(RuntimeError("the loss is nan"), {})
    second.finished(OUTCOME)
    assert not (tmp_path / "runs").exists()


def test_a_rank_waits_for_its_own_rank_0(folder, monkeypatch):
    """Not for the process of another launch that holds the folder."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "second")
    rank = RunFolder(folder.cfg, "rows of today", is_first=False)
    looks = []

    def look(_seconds):
        looks.append(1)
        if len(looks) == 2:  # the other process ends, and rank 0 of this launch takes its place
            monkeypatch.setattr("isotrain.runs.folder.owner", lambda path: own)

    own = Owner(5, "here", launch=launch_id())
    monkeypatch.setattr("isotrain.runs.folder.time.sleep", look)
    with rank.owned():
        assert len(looks) == 2


def test_a_rank_whose_rank_0_has_another_run_goes_on(composed, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setattr("isotrain.runs.folder.ALONE_S", 0.1)
    cfg = composed("task=rte", "threads=1", "source=demo", f"output_dir={tmp_path}")
    with RunFolder(cfg, "rows of today", is_first=False).owned():
        pass


def test_a_rank_waits_no_longer_than_the_run_lasts(folder, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "second")
    rank = RunFolder(folder.cfg, "rows of today", is_first=False)
    folder.begin(FACTS, None)

    def look(_seconds):
        folder.finished(OUTCOME | {"scores": {}})

    monkeypatch.setattr("isotrain.runs.folder.time.sleep", look)
    with rank.owned():
        assert rank.is_finished()


def test_scores_are_of_one_evaluation(folder):
    folder.begin(FACTS, None)
    rows = [
        {"step": 0, "isotropy/isoscore/pooled/after": 0.3, "isotropy/n_rows/pooled/after": 64.0},
        {"step": 0, "test/accuracy": 0.5},
        {"step": 9, "isotropy/n_rows/pooled/after": 1.0, "isotropy/n_rows_not_finite/x": 63.0},
        {"step": 9, "val/accuracy": 0.75},
    ]
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert folder.scores() == {
        **{"isotropy/n_rows/pooled/after": 1.0, "isotropy/n_rows_not_finite/x": 63.0},
        **{"val/accuracy": 0.75, "test/accuracy": 0.5},
    }


@pytest.mark.parametrize("name", ["metrics.jsonl", "predictions/test.csv"])
def test_a_finished_run_with_a_changed_file_is_neither_read_nor_trained_again(folder, name):
    folder.begin(FACTS, None)
    (folder.path / name).parent.mkdir(exist_ok=True)
    (folder.path / name).write_text('{"step": 1, "val/accuracy": 0.5}\n')
    (folder.path / "weights.safetensors").write_text("weights")
    folder.finished(OUTCOME)
    assert folder.is_finished()
    (folder.path / name).write_text('{"step": 1, "val/accuracy": 0.6}\n')
    with pytest.raises(ChangedError, match=f"{name} is damaged .it was changed after the run"):
        folder.is_finished()
    assert (folder.path / "weights.safetensors").exists()
    folder.cfg.rerun = True
    assert not folder.is_finished()
    folder.begin(FACTS, None)
    assert not (folder.path / "weights.safetensors").exists()
