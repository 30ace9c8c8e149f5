"""The command line of a search: exit codes, what is said, and what is not imported."""

import json
from contextlib import ExitStack
from socket import gethostname

import pytest
from isotrain.jobs.process import fresh
from optuna.exceptions import StorageInternalError

from isotrain.cli import main
from isotrain.commands import plans as commands
from isotrain.commands import targets
from tests.processes import held


@pytest.fixture
def tune(few, monkeypatch):
    def call(action, *more):
        listed = ["--list"] if action == "list" else []
        action = "run" if action == "list" else action
        return main([action, str(few.file), f"output_dir={few.runs}", *more, *listed])

    run = commands.run_search
    backend = fresh(few.command)
    monkeypatch.setattr(commands, "run_search", lambda plan, n: run(plan, n, backend))
    return call


def test_run_then_report(few, tune, capsys):
    assert tune("run", "--trials", "2", "--jobs", "2", "--name", "other") == 0
    folder = few.runs / "tune" / "other"
    first = (folder / "table.md").read_bytes()
    assert b"2 of 2 trials: 2 complete." in first
    (folder / "table.md").unlink()
    capsys.readouterr()
    assert tune("report", "--name", "other") == 0
    assert (folder / "table.md").read_bytes() == first
    assert first.decode() in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report"], "no trial of search few has been made"),
        (["status"], "no trial of search few has been made"),
        (["run", "sede=1"], "no key sede; did you mean seed?"),
        (["run", "--trials", "0"], "argument --trials: must be a whole number from 1, got 0"),
        (["list", "--config-dir", "/nope"], "--config-dir /nope is not a folder"),
    ],
)
def test_what_cannot_run_is_told_and_writes_nothing(few, tune, capsys, arguments, said):
    assert tune(*arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("isotrain: this cannot run\n  ")
    assert said in printed
    assert not few.runs.exists()


def test_without_optuna_the_way_to_install_it_is_told(tune, monkeypatch, capsys):
    monkeypatch.setattr(targets, "find_spec", lambda name: None)
    assert tune("run") == 2
    assert "pip install -e '.[tune]' in the clone" in capsys.readouterr().err


def test_a_file_is_shown_before_it_is_run(few, tune, capsys, monkeypatch):
    few.says(
        space="{isotropy: [none, clip], isotropy.n_components: {low: 1, high: 4, log: true, "
        "when: {isotropy: clip}}}",
        seeds="[0, 1, 2]",
    )
    few.file.write_text("# Question: which layer?\n" + few.file.read_text())
    assert tune("list", "data.batch_size=8", "encoder=tiny", "--trials", "5", "--name", "it") == 0
    assert capsys.readouterr().out.splitlines() == [
        "search it: 5 trials × 3 seeds = 15 runs; which layer?",
        f"every run: threads=1 task=rte encoder=tiny source=demo output_dir={few.runs} "
        "data.batch_size=8",
        "isotropy: none, clip",
        "isotropy.n_components: 1 to 4, log, where isotropy=clip",
        "seeds: 0–2",
        "sampler: tpe, pruner: none",
    ]
    assert tune("list", "sede=1") == 2  # shown, and that it could not run
    assert "no key sede" in capsys.readouterr().err
    assert not few.runs.exists()


def test_a_search_that_is_only_starting_can_be_stopped(few, tune, monkeypatch, capsys):
    lock = few.folder / "lock"
    lock.parent.mkdir(parents=True)
    with ExitStack() as call:
        call.enter_context(held(lock))
        lock.write_text(json.dumps({"pid": 1234, "n": 1, "host": gethostname()}))
        assert tune("status") == 2
        assert "search few is only starting" in capsys.readouterr().err
        monkeypatch.setattr(commands.os, "kill", lambda *_: call.close())
        assert tune("cancel") == 0
    assert "stopping process 1234" in capsys.readouterr().out
    assert [path.name for path in few.folder.iterdir()] == ["lock"]


def test_storage_that_fails_is_one_sentence(few, tune, monkeypatch, capsys):
    error = StorageInternalError("disk full\nmore")

    def fails(*_):
        raise error

    assert tune("run", "--trials", "1") == 0
    capsys.readouterr()
    monkeypatch.setattr("isotrain.reporting.search_report.write_report", fails)
    assert tune("report") == 2
    told = capsys.readouterr().err
    assert f"{few.folder / 'study.db'} cannot be read or written now (" in told
    first_line = str(error).splitlines()[0]
    assert f"{type(error).__name__}: {first_line}); the same command resumes" in told
    assert "more" not in told


def test_a_search_that_was_started_is_read_without_its_parts_and_goes_on_by_its_folder(
    few, tune, monkeypatch, capsys
):
    assert tune("run", "--trials", "1") == 0
    with monkeypatch.context() as patch:
        patch.setattr("isotrain.studies.search_plan.judge_configs", pytest.fail)
        few.says(seeds="[1]")  # it would be another one
        confirmation = next(few.folder.glob("confirm_*.yaml"))
        confirmation.unlink()
        for action in ("status", "report", "cancel"):
            assert tune(action) == 0
            assert "another search of this name (seeds differ)" in capsys.readouterr().err
        assert "of another search of this name" in (few.folder / "table.md").read_text()
        assert not confirmation.exists()
        assert main(["status", str(few.folder), "--json"]) == 0
        assert '"complete": 1' in capsys.readouterr().out
        assert main(["report", str(few.folder)]) == 0, "by the copy of its file"
        assert capsys.readouterr().err == ""
        assert confirmation.exists()
        few.file.unlink()
        assert main(["report", str(few.folder)]) == 0
        assert "1 of 1 trials: 1 complete." in capsys.readouterr().out
        assert main(["cancel", str(few.folder)]) == 0
        assert "nothing is running" in capsys.readouterr().out
    assert main(["run", str(few.folder), "--trials", "2"]) == 0
    assert "2 of 2 trials: 2 complete." in capsys.readouterr().out
