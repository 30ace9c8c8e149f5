"""A finished run, sent to W&B afterwards."""

import pytest

from isotrain.cli import main
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import few
from tests import wandb_record
from tests.pages.small_run import write_run


@pytest.fixture
def offline(monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")


def test_a_finished_run_is_in_wandb_with_every_record(tmp_path, offline, capsys):
    folder = write_run(tmp_path / "wic" / "none-0123456789", mode="max")
    assert main(["report", str(folder), "--wandb", "mine"]) == 0
    assert "wandb sync" in capsys.readouterr().out
    record = wandb_record.newest(folder)
    run = wandb_record.run_of(record)
    assert (run.project, run.display_name) == ("mine", "wic-none-0123456789-seed3")
    rows, headline = read_records(folder / "metrics.jsonl"), read_result(folder)["headline"]
    sent = wandb_record.scalars(record)
    assert len(sent) == len(rows) > 2
    for found, row in zip(sent, rows, strict=True):
        assert found["trainer/global_step"] == row["step"]
        kept = {key: value for key, value in row.items() if key not in ("step", "time_s")}
        assert few(kept, headline).items() <= found.items()
    assert wandb_record.config(record)["total"] == 10
    assert wandb_record.objects(record, "table-file")
    assert wandb_record.exit_codes(record) == [0]


def test_a_run_that_has_not_finished_is_rejected(tmp_path, offline, capsys):
    folder = write_run(tmp_path / "run", status="failed", snapshots=False)
    assert main(["report", str(folder), "--wandb", "mine"]) == 2
    assert "has not finished" in "".join(capsys.readouterr())
    assert not (folder / "wandb").exists()
