"""Damaged results: reported by name, put aside, never deleted, done again."""

import errno
import json
from functools import partial
from pathlib import Path

import pytest

from isotrain.runs.files import put_aside
from isotrain.runs.stored import stored

LOOKS = ("status", "report")
WHOLE = {"status": "finished", "monitor": "val/a", "n_rows": {"dev": 9}, "scores": {"val/a": 0.5}}
DAMAGED = {  # the text of a file: what is reported of it
    "": "invalid JSON: EOF while parsing",
    json.dumps(WHOLE)[:-20]: "invalid JSON: EOF while parsing",
    "[1, 2]": "Input should be a valid dictionary",
    '{"status": "done"}': "status: Input should be 'running', ",
    '{"scores": {}}': "status: Field required",
    "[" * 100_000: "invalid JSON: recursion limit",
    json.dumps({**WHOLE, "scores": {"val/a": "high"}}): "scores.val/a: Input should be a ",
    json.dumps({**WHOLE, "data": "\ud800"}): "invalid JSON: unexpected end of hex escape",
    json.dumps({**WHOLE, "n_rows": {"dev": 10**400}}): "n_rows.dev: Input should be less",
}


@pytest.mark.parametrize("text", DAMAGED)
def test_what_is_no_result_is_named(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    found = stored(tmp_path)
    assert found.result == {}
    assert not found.is_finished
    message = f"{tmp_path / 'result.json'} is damaged ({DAMAGED[text]}"
    assert found.damage.startswith(message)


@pytest.fixture
def storage(monkeypatch):
    """Makes a file of some name fail to be read, in any folder."""
    read = Path.read_bytes

    def fail(name, number):
        def text_of(path, *given, **more):
            if path.name == name:
                raise OSError(number, "of the storage", str(path))
            return read(path, *given, **more)

        monkeypatch.setattr(Path, "read_bytes", text_of)

    return fail


def kept(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["result.json", "study.json"])
def test_a_study_on_storage_that_fails_puts_nothing_aside(fake, storage, capsys, monkeypatch, name):
    assert fake.run() == 0
    before = kept(fake.runs)
    storage(name, errno.ESTALE)
    for command in (fake.run, *(partial(fake.main, c, str(fake.folder)) for c in LOOKS)):
        capsys.readouterr()
        assert command() == 2
        assert "of the storage" in capsys.readouterr().err
    monkeypatch.undo()
    assert kept(fake.runs) == before


def test_aside_nothing_is_lost(tmp_path):
    for text in ("first", "second", "third"):
        (tmp_path / "result.json").write_text(text)
        (tmp_path / "resume.ckpt").write_text(text)
        (tmp_path / "metrics.jsonl").write_text("rows")
        put_aside(*(tmp_path / name for name in ("result.json", "resume.ckpt", "absent")))
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "metrics.jsonl": "rows",
        **{
            f"{name}.damaged{k or ''}": text
            for name in ("result.json", "resume.ckpt")
            for k, text in enumerate(("first", "second", "third"))
        },
    }


def test_a_study_does_a_damaged_run_again_and_touches_no_other(fake, capsys):
    assert fake.run() == 0
    tables = {path: path.read_bytes() for path in fake.folder.glob("*.csv")}
    results = [job.folder / "result.json" for job in fake.plan.jobs]
    stamps = [path.stat().st_mtime_ns for path in results]
    half = results[3].read_text()[:50]
    results[3].write_text(half)
    capsys.readouterr()
    assert fake.main("status", str(fake.folder)) == 0
    message = capsys.readouterr().out
    assert f"{results[3]} is damaged" in message
    assert "4 runs, 3 finished, 1 waiting" in message
    assert fake.main("report", str(fake.folder)) == 0
    message = " ".join(capsys.readouterr().out.split())
    assert "- rte, mean, seed 1: damaged: result.json (invalid JSON" in message
    assert results[3].read_text() == half
    assert fake.run() == 0
    assert "4 runs, 3 finished before, 1 to do" in capsys.readouterr().out
    assert fake.started[4:] == ["mean-1"]
    untouched = [path.stat().st_mtime_ns for path in results]
    assert [now == then for now, then in zip(untouched, stamps, strict=True)] == [1, 1, 1, 0]
    assert {path: path.read_bytes() for path in fake.folder.glob("*.csv")} == tables
