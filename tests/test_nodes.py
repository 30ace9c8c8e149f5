"""One run over two nodes: each is a process group of its own on this machine, joined by TCP."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file

from isotrain.build import _check_launcher
from isotrain.runs.files import read_json, read_records
from tests.processes import free_port, train_on_ranks
from tools.kill_points import untimed

ROOT = Path(__file__).parents[1]
SGD = ("optimizer._target_=torch.optim.SGD", "optimizer.lr=0.05")  # Adam would divide rounding
SGD += ("~optimizer.betas", "~optimizer.eps", "~optimizer.fused")
RUN = (  # uneven shards, layer statistics, an objective and monitored values
    *("task=wic", "task.form=bi", "task.head_dropout=0", "threads=1", "cache_dir=null"),
    *("data.batch_size=15", "data.eval_batch_size=11", "trainer.precision=64-true"),
    *("isotropy=cluster_pca", "isotropy.n_clusters=2", "site=[tokens,pooled]"),
    *("objective=[cosreg]", "metric=[isoscore,outlier_dims]", "monitor.max_rows=40"),
    *("trainer.log_every_n_steps=1", *SGD),
)
NODES = ("trainer.num_nodes=2", "trainer.devices=1")
VARIABLES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    *("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"),
)


def nodes(folder, port, *overrides):
    """The torchrun of each of two nodes."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    left_out = {*VARIABLES, "OMP_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    return [
        subprocess.Popen(
            [*command, f"--node-rank={k}", "-m", "isotrain", "train", *overrides, *NODES],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for k in (0, 1)
    ]


def printed(launched):
    """What each node prints to its end."""
    return [process.communicate(timeout=600)[0] for process in launched]


def left_by(folder):
    state = load_file(folder / "weights.safetensors")
    return (
        json.loads((folder / "result.json").read_text()),
        state,
        read_records(folder / "metrics.jsonl"),
    )


def assert_equal_rows(rows1, rows2):
    assert {key for row in rows1 for key in row} >= {"train/cosreg", "val/accuracy"}
    for row1, row2 in zip(rows1, rows2, strict=True):
        assert row1.keys() == row2.keys()
        for key in untimed(row1):
            # the monitor keeps its embeddings in float32
            near = 1e-5 if key.startswith("isotropy/") else 1e-6
            assert row1[key] == pytest.approx(row2[key], rel=near, abs=1e-9), (key, row1["step"])


def after_step(step, folder, launched):
    """The step of the first checkpoint after a step."""
    while True:
        for path in folder.rglob("resume.json"):
            if (now := read_json(path)["step"]) > step:
                return now
        for process in launched:
            assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


@pytest.mark.slow
def test_two_nodes_are_one_process(small, tmp_path):
    """Losses, statistics of the layers, weights, monitored values and scores."""
    line = (*small, *RUN, "encoder.dropout=0")
    folder, _ = train_on_ranks(1, tmp_path / "one", *line)
    launched = nodes(tmp_path / "two", free_port(), *line)
    texts = printed(launched)
    assert [process.returncode for process in launched] == [0, 0], texts
    assert [text.count("metrics.jsonl (") for text in texts] == [1, 0], "rank 0 prints"
    (two,) = (tmp_path / "two").rglob("result.json")
    (result1, state1, rows1), (result2, state2, rows2) = left_by(folder), left_by(two.parent)
    assert (result1["n_processes"], result2["n_processes"]) == (1, 2)
    assert result1["steps"] == result2["steps"] > 3
    assert state1.keys() == state2.keys()
    for name, weights in state1.items():
        if not name.endswith("attention.self.key.bias"):  # without a gradient but rounding
            torch.testing.assert_close(weights, state2[name], rtol=1e-6, atol=1e-9, msg=name)
    assert_equal_rows(rows1, rows2)


@pytest.mark.slow
def test_a_lost_node_ends_the_other_and_the_run_goes_on_to_the_same_end(small, tmp_path):
    """Then SIGTERM to one node stops both, with a checkpoint."""
    line = (*small, *RUN, "encoder.dropout=0.1", "trainer.max_epochs=8", "checkpoint.every_steps=2")
    whole, _ = train_on_ranks(2, tmp_path / "whole", *line)

    launched = nodes(tmp_path / "two", free_port(), *line)
    step = after_step(0, tmp_path / "two", launched)
    agent = psutil.Process(launched[1].pid)
    for process in (*agent.children(recursive=True), agent):
        process.kill()
    killed_at = time.monotonic()
    text = printed(launched)[0]
    assert time.monotonic() - killed_at < 60
    assert launched[0].returncode == 1
    assert (
        "isotrain: the run stopped\n  another process of the run ended or does not answer (" in text
    )
    (result,) = (tmp_path / "two").rglob("result.json")
    assert read_json(result)["status"] == "failed"

    launched = nodes(tmp_path / "two", free_port(), *line)
    step = after_step(step + 2, tmp_path / "two", launched)
    launched[1].send_signal(signal.SIGTERM)
    texts = printed(launched)
    assert all(process.returncode for process in launched), texts
    assert "stopped; the same command resumes" in texts[0]
    assert read_json(result)["status"] == "interrupted"

    launched = nodes(tmp_path / "two", free_port(), *line)
    texts = printed(launched)
    assert [process.returncode for process in launched] == [0, 0], texts
    (result1, state1, rows1), (result2, state2, rows2) = left_by(whole), left_by(result.parent)
    assert result2["resumed_after_step"] >= step
    assert result1["steps"] == result2["steps"]
    for name, weights in state1.items():
        assert torch.equal(weights, state2[name]), name
    assert [untimed(row) for row in rows1] == [untimed(row) for row in rows2]


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    ("environment", "keys", "words"),
    [
        ({}, (2, 1), r"num_nodes=2 needs torchrun .*srun -N2 --ntasks-per-node=1 .*--nnodes=2 "),
        ({"RANK": "0", "LOCAL_RANK": "0"}, (2, 4), r"needs torchrun .*--nproc-per-node=4"),
        (
            TORCHRUN | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"},
            (1, 1),
            r"torchrun started 2 ranks on 2 nodes, and .* are 1 rank on 1 node; set "
            r"trainer\.num_nodes=2 trainer\.devices=1,",
        ),
        (
            TORCHRUN | {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"},
            (2, 1),
            r"4 ranks on 2 nodes, and .* are 2 ranks on 2 nodes; set trainer\.num_nodes=2 "
            r"trainer\.devices=2",
        ),
        (
            TORCHRUN | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            (2, 1),
            r"2 ranks on 1 node, and .* are 2 ranks on 2 nodes; set trainer\.num_nodes=1",
        ),
        (
            {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"},
            (1, 1),
            r"srun started 2 ranks on 2 nodes, .* set trainer\.num_nodes=2 trainer\.devices=1",
        ),
        ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "2"}, (2, 1), "srun started 3 "),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"}, (2, 1), None),
        (TORCHRUN | {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, (2, 2), None),
        ({"LOCAL_RANK": "1"}, (1, 2), None),  # a rank that Lightning has started
    ],
)
def test_the_ranks_that_were_started_are_those_of_the_keys(monkeypatch, environment, keys, words):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    trainer = OmegaConf.create(dict(zip(("num_nodes", "devices"), keys, strict=True)))
    if words is None:
        _check_launcher(trainer)
        return
    with pytest.raises(ValueError, match=words):
        _check_launcher(trainer)
