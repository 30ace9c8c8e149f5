"""How a trial ended, the callback that prunes its run, in the process of that run, and journals."""

import signal
import subprocess
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from optuna.trial import Trial, TrialState, create_trial

from isotrain.studies.trials import END, callback_of, ending, opened
from tests.studies.searched import FakeCall, searched, trials


class Pruning(NamedTuple):
    """As that of training: what it is given."""

    trial: Trial
    key: str


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A callback for a run's configuration, where the storage has an address."""
    folder = tmp_path / "searches" / "few"
    module = ModuleType("isotrain.training.callbacks.pruning")
    module.Pruning = Pruning
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)

    def of(**keys):
        node = SimpleNamespace(sweep=SimpleNamespace(dir=str(folder)))
        monkeypatch.setattr(HydraConfig, "get", lambda: node)
        return callback_of(OmegaConf.create({"search": "few", "trial": 0, "seed": 0} | keys))

    return folder, of


@pytest.mark.parametrize("storage", [None, "journal:trials.log"])
def test_a_run_reports_to_its_trial_and_asks_the_pruner_of_the_search(worker, storage):
    folder, of = worker
    seen = []

    def score(job):
        number = int(job.overrides[-1].partition("=")[2])
        callback = of(trial=number, seed=job.seed)
        if job.seed:
            assert callback is None, "the first seed alone is pruned"
            return 0.5
        assert (callback.trial.number, callback.key) == (number, "val/accuracy")
        for step in (1, 2):
            callback.trial.report(1.0 - number / 10, step)
            seen.append(callback.trial.should_prune())
        return 0.5

    options = {"n_startup_trials": 1, "n_warmup_steps": 2}
    more = {"storage": storage} if storage else {}
    more |= {"pruner": "MedianPruner", "pruner_options": options, "seeds": [0, 1]}
    assert searched(FakeCall(folder, score), n_trials=3, **more) == 0
    assert seen == [False, False, False, True, False, True]
    found = [trial.intermediate_values for trial in trials(folder, storage)]
    assert found == [{1: 1.0, 2: 1.0}, {1: 0.9, 2: 0.9}, {1: 0.8, 2: 0.8}]


@pytest.mark.parametrize(
    ("state", "end", "message"),
    [
        (TrialState.RUNNING, "complete", "running"),  # killed before its end was on record
        (TrialState.FAIL, None, "failed"),
        (TrialState.COMPLETE, None, "complete"),
        (TrialState.PRUNED, "diverged", "diverged"),
    ],
)
def test_a_trial_that_has_not_ended_has_no_ending(state, end, message):
    value = 0.5 if state == TrialState.COMPLETE else None
    own = {} if end is None else {END: end}
    assert ending(create_trial(state=state, value=value, user_attrs=own)) == message


def test_a_run_that_is_no_trial_has_no_callback(worker, monkeypatch):
    _, of = worker
    assert of(search=None) is None
    assert of(trial=None) is None
    monkeypatch.setattr(HydraConfig, "initialized", lambda: False)
    assert of() is None, "a call from Python"


WRITES = """
import sys
from isotrain.studies.trials import opened

with opened(f"journal:{sys.argv[1]}", "few", "max") as study:
    while True:
        study.set_user_attr(sys.argv[2], "x" * 10_000)
"""


def test_a_process_killed_while_it_writes_leaves_a_journal_that_others_write(tmp_path):
    path, names = tmp_path / "trials.log", [f"{k}{n}" for k in range(3) for n in "ab"]
    for pair in zip(names[::2], names[1::2], strict=True):
        writers = [subprocess.Popen([sys.executable, "-c", WRITES, path, name]) for name in pair]
        while not path.is_file() or any(f'"{name}"' not in path.read_text() for name in pair):
            assert all(writer.poll() is None for writer in writers)
            time.sleep(0.01)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
    began_at = time.monotonic()
    with opened(f"journal:{path}", "few") as study:
        study.ask()
        assert sorted(study.user_attrs) == names
    assert time.monotonic() - began_at < 20, "a killed process's lock lasts for 30 s in Optuna"


def test_a_line_that_was_cut_off_is_removed_by_the_next_one(tmp_path):
    path = tmp_path / "trials.log"
    with opened(f"journal:{path}", "few", "max") as study:
        study.ask()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 4, "worker_id": "ab')
    for n in (1, 2):
        with opened(f"journal:{path}", "few") as study:
            assert len(study.get_trials()) == n
            study.ask()
    assert path.read_bytes().startswith(whole + b'{"')
