"""One answer to how many processes a run is, and the cores that each of them is given."""

import pytest
import torch
from omegaconf import OmegaConf
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy

from isotrain.build import _trainer
from isotrain.commands import train
from isotrain.config.compose import RunJob, parse_job
from isotrain.config.schema import n_processes, number_asked_for
from isotrain.jobs.process import JOB

ASKED = [(1, 1), ("1", 1), (2, 2), ("3", 3), ([0], 1), ([5], 1), ([0, 1], 2), ([3, 1, 2], 3)]
WRONG = [0, -1, "0", "-1", "many", "", "1,2", [], ["a"], [True], [0.5], 1.5, True, None, {"a": 1}]


@pytest.mark.parametrize(("devices", "expected"), ASKED)
def test_numbers_and_lists(devices, expected):
    assert n_processes({"devices": devices}) == expected
    assert n_processes(OmegaConf.create({"devices": devices})) == expected


@pytest.mark.parametrize("devices", WRONG)
def test_anything_else_is_refused(devices):
    with pytest.raises(ValueError, match=r"trainer\.devices must be a number of processes from 1"):
        number_asked_for(devices)


@pytest.mark.parametrize(
    ("accelerator", "n_gpus", "expected"),
    [("auto", 0, 1), ("auto", 3, 3), ("gpu", 2, 2), ("cuda", 2, 2), ("cpu", 3, 1), ("mps", 3, 1)],
)
def test_auto_is_one_process_a_gpu(monkeypatch, accelerator, n_gpus, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    assert n_processes({"devices": "auto", "accelerator": accelerator}) == expected


@pytest.mark.parametrize(
    ("devices", "threads"), [(2, 4), ([0, 1], 4), ([0, 1, 2], 2), ("auto", 4), (16, 1)]
)
def test_the_cores_are_shared_by_the_processes(composed, small, monkeypatch, devices, threads):
    started = {}

    def execve(_program, _command, environment):  # ends this process
        started.update(environment)
        raise SystemExit

    monkeypatch.setattr(train, "n_cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(train.os, "execve", execve)
    cfg = composed(*small)
    cfg.trainer.accelerator, cfg.trainer.devices = "auto", devices
    with pytest.raises(SystemExit):
        train.run_here(RunJob(cfg, "none"))
    assert parse_job(started[JOB])[0].threads == threads


@pytest.mark.parametrize(("devices", "kind"), [(1, SingleDeviceStrategy), (2, DDPStrategy)])
def test_several_processes_are_joined(composed, small, tmp_path, devices, kind):
    cfg = composed(*small, "trainer.accelerator=cpu")
    cfg.trainer.devices = devices
    assert type(_trainer(cfg, tmp_path, [], n_steps=10, world_size=devices).strategy) is kind
