"""Signals, kills, and several calls at a time: nothing is lost, and nothing is done twice."""

import os
import signal

import pytest
from optuna.trial import TrialState

pytestmark = pytest.mark.campaign
DONE = [f"trial-{number}-seed0" for number in range(4)]


def test_a_search_that_was_killed_gives_the_trials_of_one_that_was_not(
    few, monkeypatch, eventually, tmp_path
):
    few.says(n_trials=5, startup=2)
    whole = few.at(tmp_path / "whole")
    assert whole.run() == 0
    few.journal.unlink()
    monkeypatch.setenv("HOLD", DONE[2])
    parent = few.parent()
    eventually(lambda: few.noted("start") == DONE[:3])
    parent.kill()
    parent.communicate()
    few.release()  # its run goes on alone, and is waited for
    assert few.run() == 0
    assert few.noted("start") == [*DONE[:4], "trial-4-seed0"]
    table, csv = ((few.folder / name).read_bytes() for name in ("table.md", "trials.csv"))
    other_table, other_csv = (
        (whole.folder / name).read_bytes() for name in ("table.md", "trials.csv")
    )
    assert csv == other_csv
    assert table.replace(b"/runs", b"/whole") == other_table


@pytest.mark.parametrize("kill_run", [False, True])
def test_no_trial_is_lost_or_doubled_by_a_kill(few, monkeypatch, eventually, kill_run):
    few.says(n_trials=4)
    monkeypatch.setenv("HOLD", f"{DONE[1]},{DONE[2]}")
    parent = few.parent(n_jobs=2)
    eventually(lambda: len(few.noted("start")) == 3 and len(few.noted("end")) == 1)
    parent.kill()
    parent.communicate()
    if kill_run:
        os.kill(list(few.pids().values())[-1], signal.SIGKILL)
    few.release()
    assert few.run(2) == 0
    assert few.states() == [TrialState.COMPLETE] * 4
    assert sorted(few.noted("end")) == DONE
    assert len(few.noted("start")) == 4 + kill_run
    assert len({trial.params["optimizer.lr"] for trial in few.trials()}) == 4


def test_a_run_that_is_stopped_from_outside_is_no_failed_trial(few, monkeypatch, eventually):
    monkeypatch.setenv("HOLD", DONE[0])
    parent = few.parent()
    eventually(lambda: few.noted("start") == DONE[:1])
    eventually(lambda: next(few.runs.glob("rte/*"), None))
    os.kill(few.pids()[DONE[0]], signal.SIGTERM)
    printed, _ = parent.communicate(timeout=60)
    assert "stopped trial-0-seed0" in printed
    assert parent.returncode == 1
    assert few.states() == [TrialState.RUNNING]
