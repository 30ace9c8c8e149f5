"""A search on a folder that machines share: real calls at once, of which all are killed."""

import os
import signal
import subprocess

import pytest
from optuna.trial import TrialState

from isotrain.runs.locks import owner
from isotrain.runs.stored import PlanError
from isotrain.studies.trials import is_left
from tests.studies.searched import FakeCall, searched, trials
from tests.studies.test_kill import ISOTRAIN, call, environment, in_group, wait_until

pytestmark = pytest.mark.campaign
JOURNAL, SPACE, N_TRIALS = "journal:trials.log", "interval(1e-4, 1e-3)", 12
SEARCH = f"""
overrides: [task=rte, encoder=tiny, encoder.width=16, source=demo, trainer.accelerator=cpu,
            data.batch_size=16, report=false, monitor.max_rows=64, 'metric=[isoscore]',
            monitor.map_rows=0, checkpoint.final=false, checkpoint.every_steps=2,
            trainer.max_steps=16, data.n_dev=64, data.n_test=64]
space:
  optimizer.lr: {SPACE}
n_trials: {N_TRIALS}
sampler: RandomSampler
pruner: NopPruner
storage: {JOURNAL}
"""
ENDED = {TrialState.COMPLETE, TrialState.PRUNED}  # pruned: a run that collapsed
RUN = (*ISOTRAIN, "run", "few.yaml", "-j", "2")


def launched(folder, name):
    """A call, in a group of its own, as on a machine."""
    with (folder / f"log-{name}").open("w") as log:
        more = {"stdout": log, "stderr": log, "process_group": 0, "env": environment(folder)}
        return subprocess.Popen(RUN, cwd=folder, **more)


def owners(folder, group):
    """The workers of a call that own a run."""
    found = [owner(path) for path in (folder / "runs/rte").glob("*/.lock")]
    return [one.pid for one in found if one is not None and one.pid in in_group(group)]


def found(folder):
    """The trials so far."""
    try:
        return trials(folder, JOURNAL)
    except PlanError:  # not made yet
        return []


def test_calls_that_are_killed_lose_no_trial_and_make_none_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "few.yaml").write_text(SEARCH)
    folder = tmp_path / "runs" / "searches" / "few"
    one, other = launched(tmp_path, "one"), launched(tmp_path, "other")
    for process in (one, other):
        wait_until(lambda process=process: owners(tmp_path, process.pid), process)
    os.kill(owners(tmp_path, one.pid)[0], signal.SIGKILL)
    assert one.wait(timeout=100) != 0, "a worker of joblib that is killed ends its call"
    wait_until(lambda: owners(tmp_path, other.pid), other)
    os.killpg(other.pid, signal.SIGKILL)
    other.wait()
    left = [trial for trial in found(folder) if is_left(trial, folder)]
    assert left
    assert {t.state for t in found(folder) if t not in left} <= ENDED
    both = [launched(tmp_path, name) for name in ("third", "fourth")]
    assert [process.wait(timeout=900) for process in both] == [0, 0]
    ended = found(folder)
    assert [trial.number for trial in ended] == list(range(N_TRIALS))
    assert {trial.state for trial in ended} <= ENDED
    assert len(list((tmp_path / "runs/rte").iterdir())) == N_TRIALS
    own = tmp_path / "alone" / "searches" / "few"
    searched(FakeCall(own), space={"optimizer.lr": SPACE}, n_trials=N_TRIALS, storage=JOURNAL)
    assert [t.params for t in ended] == [t.params for t in trials(own, JOURNAL)]
    for trial in left:
        assert ended[trial.number].params == trial.params
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs/rte").rglob("*.json")}
    assert "12 trials, 12 ended before" in call(tmp_path, *RUN)
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "runs/rte").rglob("*.json")}
