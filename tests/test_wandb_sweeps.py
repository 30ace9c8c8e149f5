"""Sweep files of W&B: the command that its own agent builds from a sampled set of values."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import yaml
from wandb import wandb_agent

from isotrain.training.revision import task_of
from tests.judge import judged
from tests.wandb_record import newest, scalars

FILES = sorted((Path(__file__).parents[1] / "sweeps").glob("*.yaml"))
IDS = [file.stem for file in FILES]


def load(file):
    """As `wandb sweep` reads it: numbers such as 1e-5 without a dot would be words."""
    return yaml.safe_load(file.read_text("utf-8"))


def samples(sweep):
    """Sets of values as the service draws them: every corner of the space."""
    choices = []
    for key, space in sweep["parameters"].items():
        values = space.get("values") or [space[k] for k in ("value", "min", "max") if k in space]
        choices.append([(key, value) for value in values])
    return [dict(chosen) for chosen in product(*choices)]


@pytest.fixture
def agent_command(monkeypatch, tmp_path):
    """`agent_command(sweep, values)`: what `wandb agent` starts for a set of values."""
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc123")
    for name in ("WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH"):  # the agent sets them; taken back
        monkeypatch.setenv(name, "")

    class Process:
        """Takes the place of the run."""

        def __init__(self, command, env, forward_signals):
            self.command = command

    monkeypatch.setattr(wandb_agent, "AgentProcess", Process)

    def build(sweep, values):
        agent = wandb_agent.Agent(None, None)
        agent._sweep_command = [*sweep["command"]]
        given = {key: {"value": value} for key, value in values.items()}
        order = {"type": "run", "run_id": "r1", "program": sweep["program"], "args": given}
        answer = agent._process_command(order)
        assert "exception" not in answer, answer
        return agent._run_processes["r1"].command

    return build


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_every_command_of_the_agent_can_run(file, agent_command):
    sweep = load(file)
    assert set(sweep) <= {
        *("name", "project", "program", "method", "metric", "parameters", "command"),
        *("early_terminate",),
    }
    for values in samples(sweep):
        command = agent_command(sweep, values)
        assert command[:5] == ["/usr/bin/env", "python", "-m", "isotrain", "train"]
        overrides = command[5:]
        assert not {"-m", "--multirun"} & set(overrides)
        assert len(overrides) > len(values)
        cfg, errors = judged(overrides)
        assert errors == []
        assert list(cfg.logger) == ["wandb"]
        assert cfg.output_dir == "runs/sweeps/abc123"
        assert sweep["metric"]["name"] == f"val/{task_of(cfg).monitor}"
        assert sweep["metric"]["goal"] == f"{task_of(cfg).mode}imize"
        for key, value in values.items():  # as given, number by number
            node = cfg
            for part in key.split("."):
                node = node[part]
            if not hasattr(node, "_target_"):
                assert node == value


@pytest.mark.campaign
def test_a_run_of_a_sweep_logs_the_metric_that_it_asks_for(agent_command, tmp_path):
    """Offline, without an agent; the service gives a run its name, so the folder says nothing."""
    sweep = load(FILES[0])
    command = agent_command(sweep, samples(sweep)[-1])
    command += ["encoder=tiny", "source=demo", "trainer.max_steps=2", "trainer.accelerator=cpu"]
    command += ["data.n_dev=128", "data.n_test=128"]
    environment = {key: v for key, v in os.environ.items() if not key.startswith("WANDB_")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, "report=false"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder,) = (path.parent for path in tmp_path.glob("runs/sweeps/abc123/*/*/result.json"))
    values = [
        row[sweep["metric"]["name"]]
        for row in scalars(newest(folder))
        if sweep["metric"]["name"] in row
    ]
    assert len(values) == 2  # step 0 and the end
    assert all(0 <= value <= 1 for value in values)
