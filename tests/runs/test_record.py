"""What a run records of its code, and how it owns its folder while others look at it."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from socket import gethostname

import pytest

from isotrain.runs import record
from isotrain.runs.locks import sign, take
from isotrain.runs.record import code_state, owned
from tests.processes import held

LOOKER = """
import sys
from pathlib import Path
from isotrain.runs.stored import is_owned
print("looking", flush=True)
while True:
    is_owned(Path(sys.argv[1]))
"""


def test_who_looks_all_the_time_keeps_no_run_from_its_folder(tmp_path):
    (tmp_path / ".lock").touch()
    line = [sys.executable, "-c", LOOKER, str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as looker:
        try:
            assert looker.stdout.readline() == b"looking\n"
            for _ in range(300):
                with owned(tmp_path):
                    pass
        finally:
            looker.kill()


def test_a_look_that_lasts_is_waited_for(tmp_path):
    with (tmp_path / ".lock").open("w") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        threading.Timer(0.5, fcntl.flock, (look.fileno(), fcntl.LOCK_UN)).start()
        began_at = time.monotonic()
        with owned(tmp_path):
            assert time.monotonic() - began_at > 0.4


def test_a_process_that_runs_it_is_waited_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "PATIENCE_S", 0.05)
    lock = take(tmp_path / ".lock")
    sign(lock)
    threading.Timer(0.7, os.close, (lock,)).start()
    began_at = time.monotonic()
    with owned(tmp_path):
        assert time.monotonic() - began_at > 0.5
    message = " ".join(capsys.readouterr().out.split())
    assert message.count("waiting for the process that runs it") == 1
    assert f"({os.getpid()} on {gethostname()})" in message


def test_ctrl_c_ends_the_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "PATIENCE_S", 0.05)
    with held(tmp_path / ".lock"):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), owned(tmp_path):
            pytest.fail("it is held")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with this package in it, and git on it."""
    module = tmp_path / "isotrain" / "runs" / "record.py"
    module.parent.mkdir(parents=True)
    module.write_text("one\n")

    def git(*arguments):
        named = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        line = ["git", "-C", str(tmp_path), *named, *arguments]
        subprocess.run(line, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    monkeypatch.setattr(record, "__file__", str(module))
    return module


def test_two_trees_with_other_changes_have_other_names(checkout):
    def state(text):
        checkout.write_text(text)
        return code_state()["git"]

    clean, two, three, again = state("one\n"), state("two\n"), state("three\n"), state("two\n")
    assert len(clean) == 12
    assert two.startswith(f"{clean}-dirty-")
    assert len(two) == len(f"{clean}-dirty-01234567")
    assert two != three
    assert two == again


def test_without_git_or_a_checkout_nothing_is_known(checkout, monkeypatch, tmp_path):
    checkout.write_text("two\n")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert code_state()["git"] is None
    monkeypatch.undo()
    monkeypatch.setattr(
        record, "__file__", str(tmp_path / "elsewhere" / "isotrain" / "runs" / "record.py")
    )
    assert code_state()["git"] is None
