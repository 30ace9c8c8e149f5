"""A job as a process of its own: what it is given, how it stops, what its log keeps."""

import json
import os
import re
import signal
import sys

import pytest
from omegaconf import OmegaConf

from isotrain.config.compose import RunJob
from isotrain.jobs import process as jobs
from isotrain.jobs.process import (
    JOB,
    STARTED,
    fresh,
    last_lines,
    start_job,
    stop_job,
    stop_signals,
)

TELL = f"""
import json, os, sys
names = ("OMP_NUM_THREADS", {JOB!r}, "OWN", "PYTHONPATH")
print(json.dumps({{"args": sys.argv[1:], "group": os.getpgid(0) == os.getpid(),
                  **{{name: os.environ.get(name) for name in names}}}}))
print("to stderr", file=sys.stderr)
"""
# Starts a grandchild, as a run of several processes does, and waits.
WAIT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def job():
    keys = {"threads": 3, "seed": 1, "source": {"root": "${oc.env:NOWHERE}"}}
    return RunJob(OmegaConf.create(keys), "none", ["seed=1"])


def ended(pid):
    """Whether a process is gone, or only waits to be noticed."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_what_a_process_is_given(job, tmp_path, monkeypatch):
    monkeypatch.setenv(JOB, "another")  # of a job that starts a job
    file, log = tmp_path / "job.json", tmp_path / "job.log"
    command = [sys.executable, "-c", TELL]
    process = start_job(job, file, log, fresh(command), {"OWN": "yes"})
    assert process.wait(30) == 0
    head, first, second = log.read_text().splitlines()
    assert head.startswith(STARTED)
    given = json.loads(first)
    assert second == "to stderr"
    assert given["args"] == [str(file)]
    assert (given["OMP_NUM_THREADS"], given["OWN"], given["group"]) == ("3", "yes", True)
    assert given[JOB] == str(file)
    assert given["PYTHONPATH"].split(os.pathsep)[0] == str(jobs.Path(jobs.__file__).parents[2])
    assert json.loads(file.read_text())["config"]["source"]["root"] == "${oc.env:NOWHERE}"


@pytest.mark.parametrize(("at_once", "code"), [(False, signal.SIGTERM), (True, signal.SIGKILL)])
def test_a_stop_reaches_the_process_and_at_once_its_ranks_too(
    job, tmp_path, eventually, at_once, code
):
    log = tmp_path / "log"
    process = start_job(job, tmp_path / "f", log, fresh([sys.executable, "-c", WAIT]))
    eventually(lambda: last_lines(log))
    rank = int(last_lines(log)[0])
    try:
        stop_job(process, at_once)
        assert process.wait(30) == -code
        if at_once:
            eventually(lambda: ended(rank))
        else:
            assert not ended(rank)  # a job stops its ranks itself, after the checkpoint
        stop_job(process, at_once)  # nothing to stop is nothing wrong
    finally:
        if not ended(rank):
            os.kill(rank, signal.SIGKILL)


def test_stop_signals_are_noted_and_end_nothing_while_listened_to():
    number = signal.SIGHUP
    before = signal.getsignal(number)
    with stop_signals() as received:
        assert received == []
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert received == [number, number]
    assert signal.getsignal(number) is before


def test_a_later_attempt_keeps_what_an_earlier_one_printed(job, tmp_path):
    log = tmp_path / "log"
    for word in ("first", "second"):
        start_job(job, tmp_path / "f", log, fresh(["sh", "-c", f"echo {word}"])).wait(30)
    text = log.read_text()
    assert re.fullmatch(rf"({STARTED}[-\d]+ [:\d]+\n(first|second)\n){{2}}", text), text
    assert last_lines(log) == ["second"]
    start_job(job, tmp_path / "f", log, fresh(["true"])).wait(30)
    assert last_lines(log) == [], "what a silent attempt ended with is not another one's"


def test_the_end_of_a_log(tmp_path, monkeypatch):
    log = tmp_path / "log"
    assert last_lines(log) == []
    monkeypatch.setenv("MY_API_KEY", "very-secret-value")
    many = "".join(f"line {k}\n\n" for k in range(20_000))
    log.write_bytes(many.encode() + b"\xff half\n  very-secret-value\n\n \n")
    assert last_lines(log) == [
        *(f"line {k}" for k in (19_997, 19_998, 19_999)),
        "\ufffd half",
        "  <redacted>",
    ]
    log.write_text("one\n")
    assert last_lines(log) == ["one"]
