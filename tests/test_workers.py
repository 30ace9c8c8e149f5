"""A worker ends with the process that launched it; no other process does."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from isotrain.launch.workers import end_with_caller

# A caller that starts a worker of joblib, which watches it; both tell their process ids.
CALLER = """
import os, sys
from joblib import Parallel, delayed
from isotrain.launch.workers import end_with_caller

def work(busy):
    end_with_caller()
    print(os.getpid(), flush=True)
    if busy:
        import time
        time.sleep(100)
    return "x" * 10**6  # more than a pipe holds

Parallel(n_jobs=2)(delayed(work)(busy) for busy in (True, False))
"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the system has no /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_a_caller_that_is_killed(tmp_path, number, eventually):
    script = tmp_path / "caller.py"
    script.write_text(CALLER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as caller:
        pids = [int(caller.stdout.readline()) for _ in range(2)]
        assert all(map(is_alive, pids))
        caller.send_signal(number)
        caller.wait()
        eventually(lambda: not any(map(is_alive, pids)))


def test_the_main_process_watches_nobody():
    """It goes on when its shell ends, as with nohup."""
    end_with_caller.cache_clear()
    before = threading.enumerate()
    end_with_caller()
    assert threading.enumerate() == before
