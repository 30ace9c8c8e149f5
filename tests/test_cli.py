"""The program as a user starts it, in processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def start(*command, cwd=ROOT):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize("command", [["train.py"], ["-m", "isotrain", "train"]])
def test_help_lists_groups_and_keys(command):
    found = start(*command, "--help")
    assert found.returncode == 0, found.stderr
    for part in ("isotropy: all_but_the_top, .*cluster_pca, .*zca", "max_rows: 1024", "seed"):
        assert re.search(part, found.stdout), part


@pytest.mark.parametrize("argument", ["--help", "site=[]"])
def test_help_and_refusals_come_before_torch(argument):
    code = (
        f"import atexit, sys; sys.argv = ['isotrain', 'train', '{argument}']\n"
        "heavy = ('torch', 'transformers', 'pytorch_lightning', 'numpy')\n"
        "atexit.register(lambda: print('LOADED', [m for m in heavy if m in sys.modules]))\n"
        "from isotrain.cli import main; main()"
    )
    found = start("-c", code)
    assert (found.returncode == 0) == (argument == "--help"), found.stderr
    assert found.stdout.splitlines()[-1] == "LOADED []"


def test_a_run_from_another_folder(tmp_path, small):
    found = start(
        "-m",
        "isotrain",
        "train",
        *small,
        "task=rte",
        "isotropy=mean",
        "trainer.max_steps=2",
        "output_dir=my runs",
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stderr
    (folder,) = tmp_path.glob("my runs/rte/mean-*")
    assert json.loads((folder / "result.json").read_text())["status"] == "finished"
    assert folder.name in found.stdout
    assert "val/accuracy" in found.stdout
    assert "Warning" not in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["my runs"]  # nothing of Hydra's


def test_an_unknown_command():
    found = start("-m", "isotrain", "trian")
    assert found.returncode == 2
    assert "no command 'trian'" in found.stderr
    assert "isotrain train" in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_usage(arguments):
    found = start("-m", "isotrain", *arguments)
    assert found.returncode == 0
    assert "isotrain demo" in found.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_and_the_command_goes_on(tmp_path, small, number):
    """The exit code says which signal it was; nothing is printed but a line."""
    command = [sys.executable, "-m", "isotrain", "train", *small, "task=wic", "metric=[]"]
    command += ["trainer.max_epochs=400", "output_dir=runs", "checkpoint.every_steps=5"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    while not list(tmp_path.rglob("resume.ckpt")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    process.send_signal(number)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + number, text
    assert "Traceback" not in text
    (result,) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text())["status"] == "interrupted"
    if number == signal.SIGINT:
        return  # what is left is the same
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE
    )
    assert "training" in process.stdout.readline()
    assert "resuming after step" in process.stdout.readline()
    process.kill()
    process.communicate()
