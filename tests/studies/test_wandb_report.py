"""Tables and page of a study in W&B: offline, in the group of its runs, never in the way."""

import json

import pytest

from isotrain.commands.wandb_report import send
from isotrain.results.frame import Row, frame
from tests import wandb_record

ROWS = [
    Row("all", "wic", "val/accuracy", "none", "277", 3, 0.5),
    Row("all", "wic", "val/accuracy", "a", "1 or 2", 3, 0.6, p=0.01, pairs=3),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a study with its tables and its page; W&B without a key."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.html").write_text("<p>page</p>")
    return folder


def kept(folder, kind):
    """The files of a kind in the folders of offline runs."""
    return sorted((folder / "wandb").rglob(f"*{kind}*"))


def test_tables_and_page_are_in_a_run_of_the_group(folder, capsys):
    send(folder, "my_study", {"project": "p", "group": None, "tags": None}, {"table": frame(ROWS)})
    assert "was not sent" not in capsys.readouterr().out
    (table,) = kept(folder, "table_0_*.table.json")
    content = json.loads(table.read_text())
    assert content["columns"] == list(Row._fields)
    cells = [dict(zip(Row._fields, line, strict=True)) for line in content["data"]]
    assert [(c["method"], c["examples"], c["mean"], c["p"], c["pairs"]) for c in cells] == [
        ("none", "277", 0.5, None, None),
        ("a", "1 or 2", 0.6, 0.01, 3),
    ]
    (page,) = kept(folder, "page_*.html")
    assert page.read_text() == "<p>page</p>"
    run = wandb_record.run_of(wandb_record.newest(folder))
    assert (run.project, run.run_group, run.job_type) == ("p", "my_study", "study")
    assert run.run_id == (folder / "wandb_id").read_text()


def test_a_later_report_continues_the_same_run(folder):
    send(folder, "my_study", {"project": "p"}, {})
    first = (folder / "wandb_id").read_text()
    send(folder, "my_study", {"project": "p"}, {})
    assert (folder / "wandb_id").read_text() == first
    assert {path.stem for path in folder.glob("wandb/*run-*/*.wandb")} == {f"run-{first}"}


def test_whatever_goes_wrong_is_reported_and_costs_nothing(folder, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", secret := "0123456789abcdef")

    def reject(**_):
        raise RuntimeError(f"bad key {secret}")

    monkeypatch.setattr("isotrain.training.loggers.wandb_logger.build_wandb_logger", reject)
    send(folder, "my_study", {"project": "p"}, {})
    message = capsys.readouterr().out
    assert "W&B: the report was not sent (RuntimeError: bad key <redacted>)" in message


@pytest.mark.parametrize("logger", ["[]", "[wandb]"])
def test_only_where_the_runs_log_to_it(fake, logger, monkeypatch):
    sent = []
    monkeypatch.setattr("isotrain.commands.report.send", lambda *given: sent.append(given))
    fake.says(seeds="[0]")
    assert fake.run(f"logger={logger}") == 0
    assert [name for _, name, _, _ in sent] == (["few"] if logger == "[wandb]" else [])
