"""How many processes a run is, and how they are joined."""

import pytest
import torch
from omegaconf import OmegaConf
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy

from isotrain.build import _trainer
from isotrain.config.schema import n_processes, number_asked_for

ASKED = [(1, 1), ("1", 1), (2, 2), ("3", 3), ([0], 1), ([5], 1), ([0, 1], 2), ([3, 1, 2], 3)]
WRONG = [0, -1, "0", "-1", "many", "", "1,2", [], ["a"], [True], [0.5], 1.5, True, None, {"a": 1}]


@pytest.mark.parametrize(("devices", "expected"), ASKED)
def test_numbers_and_lists(devices, expected):
    assert n_processes({"devices": devices}) == expected
    assert n_processes(OmegaConf.create({"devices": devices})) == expected


@pytest.mark.parametrize("devices", WRONG)
def test_anything_else_is_rejected(devices):
    with pytest.raises(ValueError, match=r"trainer\.devices must be a number of processes from 1"):
        number_asked_for(devices)


@pytest.mark.parametrize(
    ("accelerator", "n_gpus", "expected"),
    [("auto", 0, 1), ("auto", 3, 3), ("gpu", 2, 2), ("cuda", 2, 2), ("cpu", 3, 1), ("mps", 3, 1)],
)
def test_auto_is_one_process_a_gpu(monkeypatch, accelerator, n_gpus, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    assert n_processes({"devices": "auto", "accelerator": accelerator}) == expected


@pytest.mark.parametrize(("devices", "kind"), [(1, SingleDeviceStrategy), (2, DDPStrategy)])
def test_several_processes_are_joined(composed, small, tmp_path, devices, kind):
    cfg = composed(*small, "trainer.accelerator=cpu")
    cfg.trainer.devices = devices
    assert type(_trainer(cfg, tmp_path, [], n_steps=10, world_size=devices).strategy) is kind
