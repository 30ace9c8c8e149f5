"""Signals, kills, and several calls at a time: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import signal

import pytest
from optuna.trial import TrialState

pytestmark = pytest.mark.campaign
DONE = [f"trial-{number}-seed0" for number in range(4)]


def states(fake):
    return [trial.state for trial in fake.trials()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_reaches_the_runs_and_the_next_call_goes_on(
    fake, monkeypatch, eventually, number
):
    monkeypatch.setenv("HOLD", f"{DONE[0]},{DONE[1]}")
    parent = fake.parent(n_jobs=2)
    eventually(lambda: len(fake.noted("start")) == 2)
    os.killpg(parent.pid, number)  # as a terminal does
    printed, _ = parent.communicate(timeout=60)
    assert parent.returncode == 128 + number
    assert sorted(fake.noted("stop")) == DONE[:2]
    assert "stopping 2 runs" in printed
    assert states(fake) == [TrialState.RUNNING] * 2
    assert fake.release().run(2) == 0
    assert states(fake) == [TrialState.COMPLETE] * 4
    assert sorted(fake.noted("end")) == DONE


def test_a_search_that_was_killed_gives_the_trials_of_one_that_was_not(
    fake, monkeypatch, eventually, tmp_path
):
    fake.says(n_trials=5, startup=2)
    whole = fake._replace(runs=tmp_path / "whole")
    assert whole.run() == 0
    fake.journal.unlink()
    monkeypatch.setenv("HOLD", DONE[2])
    parent = fake.parent()
    eventually(lambda: fake.noted("start") == DONE[:3])
    parent.kill()
    parent.communicate()
    fake.release()  # its run goes on alone, and is waited for
    assert fake.run() == 0
    assert fake.noted("start") == [*DONE[:4], "trial-4-seed0"]
    table, csv = ((fake.folder / name).read_bytes() for name in ("table.md", "trials.csv"))
    other_table, other_csv = (
        (whole.folder / name).read_bytes() for name in ("table.md", "trials.csv")
    )
    assert csv == other_csv
    assert table.replace(b"/runs", b"/whole") == other_table


def test_two_calls_work_one_after_the_other(fake, eventually):
    fake.says(n_trials=5)
    parents = [fake.parent(), fake.parent()]
    assert [parent.wait(200) for parent in parents] == [0, 0]
    texts = [parent.stdout.read() for parent in parents]
    for parent in parents:
        parent.stdout.close()
    assert all("5 of 5 trials: 5 complete." in text for text in texts)
    assert sorted(fake.noted("end")) == [*DONE, "trial-4-seed0"]
    assert len({trial.params["optimizer.lr"] for trial in fake.trials()}) == 5


@pytest.mark.parametrize("kill_run", [False, True])
def test_no_trial_is_lost_or_doubled_by_a_kill(fake, monkeypatch, eventually, kill_run):
    fake.says(n_trials=4)
    monkeypatch.setenv("HOLD", f"{DONE[1]},{DONE[2]}")
    parent = fake.parent(n_jobs=2)
    eventually(lambda: len(fake.noted("start")) == 3 and len(fake.noted("end")) == 1)
    parent.kill()
    parent.communicate()
    if kill_run:
        os.kill(fake.pids()[-1], signal.SIGKILL)
    fake.release()
    assert fake.run(2) == 0
    assert states(fake) == [TrialState.COMPLETE] * 4
    assert sorted(fake.noted("end")) == DONE
    assert len(fake.noted("start")) == 4 + kill_run
    assert len({trial.params["optimizer.lr"] for trial in fake.trials()}) == 4


def test_a_run_that_is_stopped_from_outside_is_no_failed_trial(fake, monkeypatch, eventually):
    monkeypatch.setenv("HOLD", DONE[0])
    parent = fake.parent()
    eventually(lambda: fake.noted("start") == DONE[:1])
    eventually(lambda: next(fake.runs.glob("rte/*"), None))
    os.kill(fake.pids()[0], signal.SIGTERM)
    printed, _ = parent.communicate(timeout=60)
    assert "stopped trial-0-seed0" in printed
    assert parent.returncode == 1
    assert states(fake) == [TrialState.RUNNING]
