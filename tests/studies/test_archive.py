"""Runs found by their records: moved, without their data, and on several versions of them."""

import json
import shutil

import pytest

from isotrain.cli import main
from isotrain.commands.plans import run_study
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.rte import RTE
from isotrain.tasks.wic import WiC
from tests.processes import held

METHODS = ("none", "mean")
TABLES = ("table.md", "table.csv", "table.tex", "runs.csv", "runs.parquet")


@pytest.fixture
def data(fake, tmp_path, write_fixture_data, monkeypatch):
    """A study of a local folder that has finished; the folder, and what runs the study again."""
    root = tmp_path / "data"
    write_fixture_data(root)
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(root))

    def start():
        monkeypatch.setenv("DATA", LocalSource(str(root)).revision_of(RTE.data_set))
        return run_study(str(fake.file), [*fake.overrides, "source=local"], 3, fake.backend)

    assert start() == 0
    return root, start


def tables(folder):
    return {name: (folder / name).read_bytes() for name in TABLES}


def collected(runs):
    assert main(["collect", str(runs)]) == 0
    return {path.name: path.read_bytes() for path in (runs / "collected").iterdir()}


def test_an_archive_gives_the_same_tables_wherever_it_is_and_without_its_data(
    fake, data, tmp_path, monkeypatch, capsys
):
    before, of_all = tables(fake.folder), collected(fake.runs)
    moved = shutil.move(fake.runs, tmp_path / "moved")
    shutil.rmtree(data[0])
    fake.file.unlink()
    monkeypatch.delenv("ISOTRAIN_DATA_DIR")
    folder = moved / "studies" / "three"
    for name in TABLES:
        (folder / name).unlink()
    assert main(["report", str(folder)]) == 0
    assert tables(folder) == before
    assert json.loads((folder / "study.json").read_text())["file"] == str(fake.file)
    assert collected(moved) == of_all
    monkeypatch.chdir(folder.parent)
    capsys.readouterr()
    assert main(["status", "three"]) == 0
    assert "6 runs, 6 finished" in capsys.readouterr().out
    monkeypatch.chdir(folder / "logs")
    assert main(["status", "../../../studies/three/logs/.."]) == 0
    monkeypatch.chdir(folder)
    assert main(["status", "."]) == 0
    assert capsys.readouterr().out.count("study three: 6 runs, 6 finished") == 2


def test_moved_data_are_the_same_runs_and_changed_data_are_others(fake, data, monkeypatch, capsys):
    root, start = data
    moved = root.rename(root.with_name("elsewhere"))
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(moved))
    overrides = [*fake.overrides, "source=local"]
    assert run_study(str(fake.file), overrides, 3, fake.backend) == 0
    assert len(fake.noted("start")) == 6
    moved.rename(root)
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(root))
    old = LocalSource(str(root)).revision_of(RTE.data_set)
    with (root / "rte" / "train.jsonl").open("a") as file:
        file.write("\n")
    new = LocalSource(str(root)).revision_of(RTE.data_set)
    assert start() == 0
    assert len(fake.noted("start")) == 12
    capsys.readouterr()
    assert main(["report", str(fake.file), *overrides]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"which is shown: rte none 0–2; rte mean 0–2 on {new}, not {old}" in told
    assert "6 of 6 runs finished" in told


def test_a_new_task_on_moved_data_leaves_the_others_their_runs(fake, data, monkeypatch, capsys):
    """As when an unpacked archive of another machine goes on with one more task."""
    root, _ = data
    moved = root.rename(root.with_name("elsewhere"))
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(moved))
    monkeypatch.setenv("DATA", LocalSource(str(moved)).revision_of(WiC.data_set))
    text = fake.file.read_text("utf-8")
    fake.file.write_text(text.replace("tasks: {", "tasks: {wic: [task=wic], "))
    study = [*fake.overrides, "source=local"]
    assert run_study(str(fake.file), study, 3, fake.backend) == 0
    assert len(fake.noted("start")) == 12
    capsys.readouterr()
    assert main(["report", str(fake.file), *study]) == 0
    assert "12 of 12 runs finished" in capsys.readouterr().out


def test_no_plan_mixes_runs_on_several_folders_of_data(
    fake, data, tmp_path, write_fixture_data, monkeypatch, capsys
):
    """Seed 0 alone has finished on another folder, whose data differ."""
    other = tmp_path / "other"
    write_fixture_data(other)
    with (other / "rte" / "train.jsonl").open("a") as file:
        file.write("\n")
    overrides = [*fake.overrides, "source=local", f"source.root={other}"]
    monkeypatch.setenv("DATA", LocalSource(str(other)).revision_of(RTE.data_set))
    monkeypatch.setenv(
        "FAIL", ",".join(f"rte-{method}-seed{k}" for method in METHODS for k in (1, 2))
    )
    assert run_study(str(fake.file), overrides, 3, fake.backend) == 1
    capsys.readouterr()
    main(["status", str(fake.file), *overrides])
    assert "6 runs, 2 finished, 4 failed" in capsys.readouterr().out


def test_cancel_says_what_it_cannot_find(fake, data, monkeypatch, capsys):
    monkeypatch.setattr("isotrain.commands.plans.UNSIGNED_S", 0.1)
    with held(fake.folder / "logs" / "rte-none-seed0.log"):
        assert main(["cancel", str(fake.folder)]) == 2
    assert "rte-none-seed0.log; stop them" in " ".join(capsys.readouterr().err.split())


def test_runs_with_other_keys_are_not_taken_from_another_study(fake, data, capsys):
    """A record that lacks a key is of the study; one with another value of a key is not."""
    other = ["--name", "other", "+trainer.detect_anomaly=true", "source=local", *fake.overrides]
    assert main(["status", str(fake.file), *other]) == 0
    assert "6 runs, 0 finished, 6 waiting" in capsys.readouterr().out
    (fake.folder / "study.json").unlink()
    assert main(["status", str(fake.file), *other]) == 0
    told = capsys.readouterr()
    assert "6 runs, 6 finished" in told.out
    assert told.err == "these runs have other keys than the study has now: trainer.detect_anomaly\n"
    assert main(["status", str(fake.file), *other, "optimizer.lr=0.5"]) == 0
    told = capsys.readouterr()
    assert "6 runs, 0 finished, 6 waiting" in told.out
    assert "optimizer.lr was " in told.err


def test_tasks_that_differ_by_an_override_find_their_own_records(fake, data, capsys):
    text = fake.file.read_text("utf-8")
    fake.file.write_text(text.replace("tasks: {", "tasks: {fast: [task=rte, optimizer.lr=0.1], "))
    assert data[1]() == 0
    before = (fake.folder / "runs.csv").read_bytes()
    (fake.folder / "study.json").unlink()
    more = ["+trainer.detect_anomaly=true", "source=local", *fake.overrides]
    capsys.readouterr()
    assert main(["report", str(fake.file), *more]) == 0
    assert "other keys than the study has now: trainer.detect_anomaly" in capsys.readouterr().err
    assert (fake.folder / "runs.csv").read_bytes() == before


def test_finished_runs_with_other_settings_are_told_of(fake, data, capsys):
    (fake.folder / "study.json").unlink()
    for given, words in (
        ([], "source._target_ was "),
        (["source=local", "optimizer.lr=1"], "optimizer.lr was "),
    ):
        for action, code in (("status", 0), ("report", 2)):
            assert main([action, str(fake.file), *fake.overrides, *given]) == code
            told = capsys.readouterr().err.splitlines()[0]
            assert told.startswith(
                f"{fake.runs} holds 6 finished runs of these tasks, methods and seeds with other "
                "settings: of "
            )
            assert words in told
            assert told.endswith("give the overrides that they were run with")
    assert main(["status", str(fake.file), *fake.overrides, "source=local"]) == 0
    assert capsys.readouterr().err == ""
