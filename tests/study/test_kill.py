"""A real study of two runs at a time, killed with all it started, and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from isotrain.study.progress import checkpoint_step

OVERRIDES = (
    *("trainer.max_steps=100", "checkpoint.every_steps=4", "monitor.max_rows=64"),
    *("metric=[isoscore]", "report=false", "monitor.map_rows=0", "output_dir=runs"),
)
COMMAND = (sys.executable, "-m", "isotrain", "study", "run", "smoke", "--jobs", "2", *OVERRIDES)
TABLES = ("table.md", "table.csv", "table.tex", "runs.csv")


def run(folder):
    return subprocess.run(
        COMMAND, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def children(pid):
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [int(own) for own, parent in map(str.split, lines) if int(parent) == pid]


@pytest.mark.slow
def test_only_what_is_missing_is_done_again_and_the_tables_are_the_same_bytes(tmp_path):
    disturbed, undisturbed = tmp_path / "a", tmp_path / "b"
    disturbed.mkdir()
    undisturbed.mkdir()
    runs = disturbed / "runs" / "rte"
    with (disturbed / "log").open("w") as log:
        parent = subprocess.Popen(COMMAND, cwd=disturbed, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 300
        while len(list(runs.glob("cluster_pca-*/resume.ckpt"))) < 2 and time.monotonic() < deadline:
            assert parent.poll() is None
            time.sleep(0.01)
    finally:
        at_work = children(parent.pid)
        parent.kill()  # first: it would start another run
        parent.wait()
        for pid in at_work:
            os.kill(pid, signal.SIGKILL)
    done = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in runs.glob("none-*/result.json")}
    assert len(at_work) == len(done) == 2
    assert {json.loads(content)["status"] for _, content in done.values()} == {"finished"}
    broken = {p.parent: checkpoint_step(p) for p in runs.glob("cluster_pca-*/resume.ckpt")}
    assert len(broken) == 2
    assert all(0 < step < 100 for step in broken.values())

    again = run(disturbed)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "4 runs, 2 finished before, 2 to do" in again.stdout
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in done} == done
    for folder, step in broken.items():
        assert json.loads((folder / "result.json").read_text())["resumed_after_step"] == step
    whole = run(undisturbed)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    for name in TABLES:
        own, other = (
            (folder / "runs" / "studies" / "smoke" / name).read_bytes()
            for folder in (disturbed, undisturbed)
        )
        assert own == other, name
