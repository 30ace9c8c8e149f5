"""A file is replaced whole or not at all; `result.json` is strict JSON, and what is read back."""

import json
import math
import os

import pytest

from isotrain.runs import files
from isotrain.runs.files import (
    DamagedError,
    read_json,
    read_records,
    read_result,
    replace_bytes,
    replace_text,
    replacing,
    write_json,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_older_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    replace_text(path, "old\n")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old\n"
        assert len(names(tmp_path)) == 2
        assert all(name == "a.txt" or name.endswith(".part") for name in names(tmp_path))
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_leaves_the_older_file_and_no_part(tmp_path, error):
    path = tmp_path / "a.txt"
    replace_bytes(path, b"old")

    def fail():
        with replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_two_writers_at_once_do_not_share_a_part(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as first:
        first.write(b"a long first text")
        with replacing(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"a long first text"
    assert names(tmp_path) == ["a.txt"]


def test_names_that_differ_in_their_ending_alone_are_apart(tmp_path, monkeypatch):
    """`table.csv` and `table.tex` written at once would share the part `table.part`."""
    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda part, path: seen.append(part) or replace(part, path))
    replace_text(tmp_path / "table.csv", "x")
    write_json(tmp_path / "table.json", {})
    assert [part.name.split(".")[:2] for part in seen] == [["table", "csv"], ["table", "json"]]


def test_what_is_not_finite_is_null_and_a_score_reads_as_nan(tmp_path):
    scores = {"val/loss": math.nan, "val/x": math.inf, "val/accuracy": 0.5}
    content = {"status": "finished", "scores": scores, "resumed_after_step": None}
    content["odd"] = [math.nan]
    write_json(tmp_path / "result.json", content)
    stored = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)
    assert stored["scores"] == {"val/loss": None, "val/x": None, "val/accuracy": 0.5}
    assert stored["odd"] == [None]
    result = read_result(tmp_path)
    assert math.isnan(result["scores"]["val/loss"])
    assert math.isnan(result["scores"]["val/x"])
    assert result["scores"]["val/accuracy"] == 0.5
    assert result["resumed_after_step"] is None, "a null that is no score stays one"
    assert math.isnan(content["scores"]["val/loss"]), "what is written is not changed"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"step": 1, "val/a": "high"}', "val/a: Input should be a valid number, got 'high'"),
        ('{"step": 1, "val/a": true}', "val/a: Input should be a valid number, got True"),
        ('{"step": 1, "val/a": NaN}', "val/a: Input should be a finite number"),
        ('{"val/a": 1.0}', "step: Field required"),
        ('{"step": 1.5}', "step: Input should be a valid integer, got 1.5"),
        ("[1]", "Input should be an object"),
        ("", "Invalid JSON: EOF while parsing"),
    ],
)
def test_a_line_of_the_metrics_that_is_no_record_is_named(tmp_path, line, reason):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "val/a": null}\n' + line + "\n")
    with pytest.raises(DamagedError, match=rf"metrics.jsonl:2 is damaged \({reason}"):
        read_records(path)


def test_nothing_but_a_regular_file_of_bounded_size_is_read(tmp_path, monkeypatch):
    """A FIFO would wait for a writer, a device would fill the memory."""
    path = tmp_path / "result.json"
    os.mkfifo(path)
    with pytest.raises(DamagedError, match="it is no file"):
        read_result(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(DamagedError, match="it is no file"):
        read_result(tmp_path)
    path.unlink()
    path.write_bytes(b'{"a": 1}')
    monkeypatch.setattr(files, "MOST_BYTES", 8)
    assert read_json(path) == {"a": 1}
    path.write_bytes(b'{"a": 12}')
    with pytest.raises(DamagedError, match="it is no file of at most 8 bytes"):
        read_json(path)
