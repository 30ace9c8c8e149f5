"""The tables of a search, and its status while it runs, when it was stopped and at its end."""

import csv
import math
import sqlite3

import pytest

from isotrain.results.search_report import status_of_search, write_report
from isotrain.runs.stored import PlanError
from isotrain.studies.call import RunError
from isotrain.studies.definition import load_study
from tests.studies.searched import FakeCall, searched

TINY = ["task=rte", "encoder=tiny", "source=demo"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "searches" / "few"


def ran(folder, ends, **changed):
    """A search whose runs end so, in order; in one batch."""
    left = iter(ends)

    def score(job):
        end = next(left)
        if isinstance(end, BaseException):
            raise end
        return end

    more = {"overrides": TINY, "n_trials": len(ends)} | changed
    searched(FakeCall(folder, score, n_at_once=len(ends), overrides=["output_dir=out"]), **more)
    return folder


ENDS = (
    *(
        0.25,
        0.75,
        RunError("PrunedError", "143"),
        RunError("RuntimeError", "exit | code 3"),
        math.nan,
    ),
    {"scores": {"val/accuracy": 0.5}, "degenerate_reason": "all one class"},
    RunError("NonFiniteError", "the loss is nan"),
)


def test_the_tables_have_every_trial_and_the_best_is_reported_as_chosen(folder, capsys):
    with pytest.raises(PlanError, match="no search was started in"):
        write_report(folder)
    lr = {"optimizer.lr": "tag(log, interval(1e-5, 1e-3))"}
    ran(folder, ENDS, space=lr, n_trials=7, margin=0.01)
    files = write_report(folder)
    assert [file.name for file in files] == ["confirm_few_1.yaml", "table.md", "trials.csv"]
    text = (folder / "table.md").read_text()
    assert text in capsys.readouterr().out
    message = "1 pruned, 1 degenerate, 1 diverged, 1 undefined, 1 failed."
    assert f"7 of 7 trials: 2 complete, {message}" in text
    assert "- every run: `task=rte encoder=tiny source=demo output_dir=out`" in text
    assert "- optimizer.lr: tag(log, interval(1e-5, 1e-3))\n" in text
    assert "- sampler: RandomSampler, seed 0\n- pruner: NopPruner\n" in text
    assert "Trial 1 is the best of 2 on dev (75.0) and was chosen for that" in text
    assert "the best of several scores lies above what" in text
    order = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert order == ["trial", "-----", "1", "0", "2", "3", "4", "5", "6"]
    assert r"RuntimeError: exit \| code 3" in text
    assert f"isotrain run {folder / 'confirm_few_1.yaml'} output_dir=out" in text
    assert load_study(str(folder / "confirm_few_1.yaml")).margin == 0.01
    rows = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert [row["val/accuracy"] for row in rows] == ["0.25", "0.75", *[""] * 5]
    assert [row["seed_0"] for row in rows] == ["0.25", "0.75", *[""] * 5]
    assert [row["state"] for row in rows][-3:] == ["undefined", "degenerate", "diverged"]
    assert all(float(row["optimizer.lr"]) > 0 for row in rows)
    write_report(folder)
    assert (folder / "table.md").read_text() == text


def test_the_lowest_is_best_where_the_direction_says_so(folder):
    ran(folder, [0.6, 0.4, 0.5, 0.4], mode="min", seeds=[3])
    write_report(folder)
    text = (folder / "table.md").read_text()
    assert "Trial 1 is the best of 4" in text, "the first of equals"
    assert "- score: val/accuracy, the lowest is best\n" in text
    assert "the best of several scores lies below what" in text
    assert text.index("| 1 ") < text.index("| 2 ") < text.index("| 0 ")


def test_conditional_keys_options_and_several_seeds_are_reported(folder):
    beside = {"isotropy.n_components": "range(1, 5)"}
    space = {"isotropy": ["none", "clip"], "isotropy=clip": beside}
    more = {"pruner": "MedianPruner", "pruner_options": {"n_warmup_steps": 2}}
    ran(folder, [0.5] * 12, space=space, n_trials=6, seeds=[0, 3], **more)
    write_report(folder)
    text = (folder / "table.md").read_text()
    assert "- isotropy.n_components: range(1, 5), where isotropy=clip\n" in text
    assert "mean over seeds 0, 3" in text
    assert "- pruner: MedianPruner(n_warmup_steps=2)\n" in text
    assert "To compare none, clip over seeds" in text


def lines_of(status):
    return list(status.lines)


def test_the_status_of_a_search_that_has_ended(folder):
    with pytest.raises(PlanError, match="no search was started in"):
        status_of_search(folder)
    status = status_of_search(ran(folder, ENDS))
    assert lines_of(status) == [
        "trial 3: seed 0: RuntimeError: exit | code 3",
        "search few: 7 trials, 2 complete, 1 pruned, 1 degenerate, 1 diverged, 1 undefined, "
        "1 failed",
    ]
    assert status.has_failed


def test_the_status_of_a_search_that_runs_and_of_one_that_was_stopped(folder):
    seen = []

    def score(job):
        if len(call.launched) == 1:
            assert write_report(folder) == [], "none has ended"
            assert "time left unknown" in lines_of(status_of_search(folder))[0]
        if len(call.launched) == 3:
            seen.append(status_of_search(folder))
            raise SystemExit(130)
        return 0.5

    call = FakeCall(folder, score)
    with pytest.raises(SystemExit):
        searched(call)
    (running,), stopped = seen, status_of_search(folder)
    (line,), (after,) = lines_of(running), lines_of(stopped)
    assert line.startswith("search few: 4 trials, 2 complete, 1 running, 1 waiting; about")
    assert line.endswith("left")
    assert after.startswith("search few: 4 trials, 2 complete, 2 waiting; about")
    assert after.endswith("left; none is running: the same command goes on")
    assert not stopped.has_failed


def test_without_its_storage_a_search_has_no_trials(folder):
    ran(folder, [0.5])
    (folder / "study.db").unlink()
    with pytest.raises(PlanError, match=r"study\.db is missing"):
        write_report(folder)
    assert not (folder / "study.db").exists()


def test_trials_behind_a_link_are_not_opened(folder, tmp_path):
    ran(folder, [0.5])
    (folder / "study.db").rename(other := tmp_path / "other.db")
    (folder / "study.db").symlink_to(other)
    for look in (status_of_search, write_report):
        with pytest.raises(PlanError, match=r"study\.db is missing, or is a link"):
            look(folder)


@pytest.mark.parametrize(
    "damage",
    ["UPDATE trial_user_attributes SET value_json = '{'", "UPDATE trials SET state = 'GONE'"],
)
def test_damaged_trials_are_reported_with_their_file(folder, damage):
    ran(folder, [0.5])
    with sqlite3.connect(folder / "study.db") as database:
        database.execute(damage)
    for look in (status_of_search, write_report):
        with pytest.raises(PlanError, match=r"study\.db cannot be read \(.*restore the file"):
            look(folder)


def test_the_study_that_confirms_is_written_when_all_trials_have_ended(folder):
    def score(job):
        if len(call.launched) == 3:
            seen.extend(file.name for file in write_report(folder))
            assert "is written when all trials have ended" in (folder / "table.md").read_text()
        return 0.5 + len(call.launched) / 10

    seen, call = [], FakeCall(folder, score, overrides=["output_dir=out"])
    searched(call, overrides=TINY, n_trials=3)
    assert seen == ["table.md", "trials.csv"]
    assert "confirm_few_2.yaml" in {file.name for file in write_report(folder)}


def test_a_storage_elsewhere_is_opened_only_where_the_file_of_the_search_names_it(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("PLACE", str(tmp_path))
    storage = "sqlite:///${oc.env:PLACE}/trials.db"
    ran(folder, [0.5, 0.7], storage=storage)
    for look in (status_of_search, write_report):
        with pytest.raises(PlanError) as error:
            look(folder)
        assert f"the trials of {folder} are not in it, but in {storage}; " in str(error.value)
        with pytest.raises(PlanError):
            look(folder, "sqlite:///trials.db")
    assert "2 complete" in lines_of(status_of_search(folder, storage))[0]
    assert len(write_report(folder, storage)) == 3
    inside = ran(folder.with_name("other"), [0.5], storage="journal:trials.log")
    assert "1 complete" in lines_of(status_of_search(inside))[0]


def test_every_failure_is_listed(folder):
    ran(folder, [RunError("RuntimeError", "no")] * 22)
    lines = lines_of(status_of_search(folder))
    assert lines[0] == "trial 0: seed 0: RuntimeError: no"
    assert lines[-2:] == [
        "trial 21: seed 0: RuntimeError: no",
        "search few: 22 trials, 0 complete, 22 failed",
    ]
    write_report(folder)
    assert "No trial is complete" in (folder / "table.md").read_text()
