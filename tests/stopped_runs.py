"""Runs that are stopped at a call of their module, runs to their end, and weights put in one."""

import os
import signal

import pytest
import torch
from pytorch_lightning.utilities.exceptions import SIGTERMException
from safetensors.torch import load_file

from isotrain.model import checkpoint
from isotrain.runner import folder_of, run
from isotrain.runs.files import WEIGHTS_FILE, read_records, read_result, sha256_of, write_result
from isotrain.training.module import FineTuning
from tools.kill_points import untimed


def terminate(_module):
    """The reaction to a call: a signal. A training step is still done."""
    os.kill(os.getpid(), signal.SIGTERM)


def fail(_module):
    """The reaction to a call: an error."""
    raise RuntimeError("as a power cut would")


def stopped(cfg, monkeypatch, method, at, reaction=terminate):
    """Run until the `at`-th call of a method of the module, and react there; the folder."""
    calls, original = 0, getattr(FineTuning, method)

    def counted(self, *arguments):
        nonlocal calls
        calls += 1
        if calls == at:
            reaction(self)
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FineTuning, method, counted)
        with pytest.raises((SIGTERMException, RuntimeError)):
            run(cfg)
    return folder_of(cfg)


def finished(cfg, **options):
    """Scores, records without times, and final weights of a run."""
    scores = run(cfg, **options)
    folder = folder_of(cfg)
    rows = [untimed(row) for row in read_records(folder / "metrics.jsonl")]
    return scores, rows, load_file(folder / WEIGHTS_FILE)


def differing(one, other):
    """The names of the tensors that two states do not have in common, bit by bit."""
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


def assert_same_end(one, other):
    """What `finished` gives of two runs is the same, bit by bit."""
    assert one[:2] == other[:2]
    assert differing(one[2], other[2]) == []


def save_weights(state, folder):
    """Write `weights.safetensors` as if the run of a folder had ended with it."""
    checkpoint.save_weights(state, file := folder / WEIGHTS_FILE)
    write_result(folder, read_result(folder) | {"weights_sha256": sha256_of(file)})
