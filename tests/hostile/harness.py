"""One case of the campaign: a command in a forked process, and how it ended.

rejected    exit code 1 or 2 with a sentence that begins with `isotrain:`
ran        exit code 0
library    the traceback of a library that a case expects to reject a value in its own words
traceback  Python's own words, a signal, or an exit code without a word
hang       not ended within the time
silent     accepted nonsense, other numbers, a raw control character, a file where none belongs
"""

import gc
import hashlib
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from isotrain import cli

SEED = "2026-11"
BAD = ("traceback", "hang", "silent")
LIMIT_S = 60.0 * float(os.environ.get("ISOTRAIN_TEST_PATIENCE", "1"))
MEMORY = 12 * 2**30  # bytes of addresses
RAW = [*map(chr, {*range(32), *range(127, 160)} - {9, 10, 13, 27}), "\x1b]", "\u202e"]
TINY = (
    *("encoder=tiny", "encoder.width=8", "encoder.n_blocks=1", "source=demo", "threads=1"),
    *("trainer.accelerator=cpu", "report=false", "data.batch_size=4", "data.n_train=8"),
    *("data.n_dev=8", "data.n_test=8", "monitor.max_rows=16", "monitor.map_rows=0"),
    *("trainer.max_steps=2", "metric=[isoscore]", "optimizer.fused=false", "checkpoint.every_s=0"),
)


class End(NamedTuple):
    """How a command ended, and what it printed."""

    kind: str
    text: str
    code: int | None


def draw(*parts: Any) -> random.Random:
    """The random numbers of one case."""
    return random.Random("/".join(map(str, (SEED, *parts))))


def ended(
    work: Sequence[str] | Callable[[], Any],
    folder: Path,
    environment: Mapping[str, str] = {},
    limit_s: float = LIMIT_S,
    file_size: int | None = None,
) -> End:
    """Run a command line of `isotrain`, or a function, in a process forked into `folder`."""
    log = folder.parent / f"{folder.name}.log"
    child = os.fork()
    if not child:
        _child(work, folder, log, environment, file_size)
    deadline, status = time.monotonic() + limit_s, 0
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return End("hang", log.read_text(errors="replace"), None)
        time.sleep(0.01)
    status = done[1]
    text = log.read_bytes().decode(errors="backslashreplace")
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    if "Traceback (most recent call last)" in text or code < 0 or code not in (0, 1, 2):
        return End("traceback", text, code)
    if code and not any(word in text for word in ("isotrain: ", "stopped", "failed")):
        return End("traceback", f"exit code {code} without a sentence: {text}", code)
    if any(character in text for character in RAW):
        return End("silent", f"raw control characters: {text!r}", code)
    return End("ran" if code == 0 else "rejected", text, code)


def _child(work: Any, folder: Path, log: Path, environment: Mapping[str, str], size: Any) -> None:
    code = 70
    try:
        gc.disable()
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # `&` in a script ignores it
        sys.argv = ["isotrain"]
        with log.open("wb") as file, open(os.devnull) as nothing:
            for number, stream in enumerate((nothing, file, file)):
                os.dup2(stream.fileno(), number)
        sys.stdin = open(0)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        warnings.resetwarnings()
        os.environ.update(environment)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        if size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        code = int((work() if callable(work) else cli.main(list(work))) or 0)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def contents(folder: Path, *without: Path) -> dict[str, str]:
    """Every file and folder below one, with a digest of what it has; links are not followed."""
    found = {}
    for path in folder.rglob("*"):
        if any(path == one or one in path.parents for one in without):
            continue
        is_file = path.is_file() and not path.is_symlink()
        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
    return found


def judged(
    record: Callable[[str, Any], None],
    command: Any,
    end: End,
    why_silent: str = "",
    of_library: str = "",
) -> End:
    """Note the class of a case; fail for the last three.

    `why_silent` says what was wrong with a case that should not have gone on. One with `of_library`
    must end with that error of a library, word by word.
    """
    kind = "silent" if why_silent and end.kind == "ran" else end.kind
    if of_library:
        assert end.text.rstrip().rpartition("\n")[2].startswith(of_library), end
        kind = "library"
    record("hostile", kind)
    shown = command if isinstance(command, str) else " ".join(map(ascii, command))
    shown = shown if len(shown) < 1500 else f"{shown[:1500]}… ({len(shown)} characters)"
    assert kind not in BAD, f"{kind}: {why_silent}\n  {shown}\n  {end.code}: {end.text[-3000:]}"
    return end
