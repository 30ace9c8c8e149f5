"""The spinner on a pseudo-terminal, frame by frame; outputs that fail."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from rich.table import Table

from isotrain.console import launcher, reject, say

WIDTH = 70
HEAD = "import time\nfrom isotrain.console import guarded, spinner\n"
CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")


class Screen:
    """What a terminal shows after some text: lines, cursor, and how often the cursor was hidden."""

    def __init__(self):
        self.lines, self.row, self.column, self.is_hidden = [""], 0, 0, False
        self.frames = []

    def feed(self, text):
        at = 0
        while at < len(text):
            control = CONTROL.match(text, at)
            if control is None:
                self.put(text[at])
                at += 1
                continue
            at = control.end()
            argument, letter = control.groups()
            if letter == "A":
                self.row -= int(argument or 1)
            elif letter == "K":
                assert argument == "2"
                self.lines[self.row] = ""
            elif argument == "?25":
                self.is_hidden = letter == "l"
            else:
                assert letter == "m", control  # a colour
        return self

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row, self.column = self.row + 1, 0
            self.lines += [""] * (self.row + 1 - len(self.lines))
            self.frames.append([line.rstrip() for line in self.lines])
        else:
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1
            assert self.column <= WIDTH, "a line that breaks cannot be taken back"
            self.frames.append([line.rstrip() for line in self.lines])


def on_terminal(code, **environment):
    """The screen of a Python program at its end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, WIDTH, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    found = b""
    try:
        while more := os.read(ours, 65536):
            found += more
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0, found
    return Screen().feed(found.decode())


def shown(screen, text):
    """Whether a line stood on the screen at any time; how many such lines at once."""
    return max((sum(text in line for line in frame) for frame in screen.frames), default=0)


SAY = "from isotrain.pages.summary import say\n"


def test_a_line_stands_below_what_is_said_and_is_gone_at_the_end():
    screen = on_terminal(
        SAY + "with spinner('reading [all] rows') as now:\n"
        "    time.sleep(0.4); say('a first line'); time.sleep(0.3)\n"
        "    now('token ids'); time.sleep(0.4); say('a second line'); time.sleep(0.3)\n"
        "say('the end')"
    )
    assert shown(screen, "reading [all] rows") == 1
    assert shown(screen, "token ids") == 1
    assert [line.rstrip() for line in screen.lines if line.strip()] == [
        "a first line",
        "a second line",
        "the end",
    ]
    assert not screen.is_hidden
    below = [frame for frame in screen.frames if any("token ids" in line for line in frame)]
    assert all("a first line" in frame for frame in below)


def test_it_gives_way_to_what_writes_to_stderr():
    screen = on_terminal(
        "import sys, warnings\n"
        "with guarded(), spinner('loading weights'):\n"
        "    time.sleep(0.4)\n"
        "    for share in (10, 50, 100):\n"
        "        sys.stderr.write(f'\\r{share} % of a download'); sys.stderr.flush()\n"
        "        time.sleep(0.3)\n"
        "    sys.stderr.write('\\n'); warnings.warn('a warning')\n"
    )
    assert shown(screen, "loading weights") == 1
    assert shown(screen, "50 % of a download") == 1, "the bar of a download is seen"
    assert screen.lines[0].rstrip() == "100 % of a download"
    assert "UserWarning: a warning" in screen.lines[1]
    assert not [line for line in screen.lines if "loading weights" in line]


def test_a_process_that_is_not_the_first_shows_nothing():
    code = "with spinner('reading rows'): time.sleep(0.4)"
    assert shown(on_terminal(code, LOCAL_RANK="1"), "reading") == 0
    assert shown(on_terminal(code, RANK="0", LOCAL_RANK="1"), "reading") == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"TORCHELASTIC_RUN_ID": "none", "RANK": "0"}, "torchrun"),
        ({"RANK": "0"}, "another"),
        ({"LOCAL_RANK": "1"}, "another"),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, ""),  # the script of a job
        ({"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}, ""),  # srun -n1, submitit
        ({"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, "srun"),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_NAME": "interactive"}, "srun"),  # within salloc
    ],
)
def test_what_started_this_process(monkeypatch, environment, expected):
    for name in ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launcher() == expected


def test_control_characters_are_escaped_in_messages_and_tables(capsys):
    reject("no \x1b]0;title\x07\n\u202ehere\x9b2J")
    table = Table("na\x1b[31mme")
    table.add_row("a\x9b2J\u202e")
    say(table)
    say("b\x1b[2J\ttab")
    out, error = capsys.readouterr()
    assert error == "isotrain: this cannot run\n  no \\x1b]0;title\\x07\n  \\u202ehere\\x9b2J\n"
    assert all(text in out for text in ("na\\x1b[31mme", "a\\x9b2J\\u202e", "b\\x1b[2J"))
    assert not {"\x1b", "\x9b", "\u202e"} & set(out)


TALK = (
    "import sys\nfrom isotrain.console import guarded, say, print_error\n"
    "with guarded():\n"
    "    say('0.27 → 0.26'); print('−' * 100_000); print_error('stopped', ['→'])\n"
    "sys.exit(3)"
)


@pytest.mark.parametrize("outputs", [">/dev/full 2>/dev/full", ">&- 2>&-", "2>&1 | true"])
def test_an_output_that_fails_changes_no_exit_code(outputs):
    line = f"set -o pipefail; '{sys.executable}' -c \"$TALK\" {outputs}"
    environment = {**os.environ, "TALK": TALK}
    found = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (3, b"", b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_an_output_cannot_encode_are_escaped(encoding):
    found = subprocess.run(
        [sys.executable, "-c", TALK],
        env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"},
        capture_output=True,
        check=False,
    )
    assert found.returncode == 3
    assert b"0.27 \\u2192 0.26\n\\u2212\\u2212" in found.stdout
    assert found.stderr == b"isotrain: stopped\n  \\u2192\n"
