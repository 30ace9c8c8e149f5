"""A sweep of `isotrain train -m`: one process for Hydra, and behind any launcher one for each job.

`<output_dir>/.multirun/<time>-<pid>/` has `<number>/job.json`, `log.txt` where jobs run side by
side, `outcome.json` of each job that has ended, and the lock `at_work` of the worker that waits for
it: one that vanished holds none, and left no outcome. Hydra's process stands in a process group of
its own, so that Ctrl-C reaches `run_sweep` alone; it writes the file `stop`, which every job looks
for: launchers kill their workers, and those would take their runs along before a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser

from isotrain.config.compose import RunJob, written
from isotrain.config.sweep import n_jobs, swept_keys
from isotrain.console import say
from isotrain.jobs.devices import VISIBLE, cuda_devices, device_for
from isotrain.jobs.locks import held, take
from isotrain.jobs.process import (
    COMMAND,
    POLL_S,
    at_end_of_input,
    last_lines,
    own_environment,
    start_job,
    stop_job,
    stop_signals,
)
from isotrain.runs.files import read_result, replace_text, write_json
from isotrain.runs.secrets import redacted

SWEEP, DEVICES = "ISOTRAIN_SWEEP", "ISOTRAIN_DEVICES"  # environment: folder of a sweep, its GPUs
ON_THIS_MACHINE = ("JoblibLauncher", "LocalLauncher")  # that start jobs side by side
STOP = "stop"  # a file: 1 = every job stops with a checkpoint, 2 = at once
AT_WORK = "at_work"  # a file in the folder of a job, locked by its worker
LOOK_S = 1.0  # between two looks at what has ended


def run_sweep(arguments: Sequence[str], output_dir: Path) -> int:
    """0 when every job of `isotrain train <arguments>` is finished, 1 when one failed.

    128 + number after a signal: the first one stops every job with a checkpoint, the second one at
    once. A job that fails stops no other.

    Raises:
        OSError: the folder of the sweep cannot be made.
    """
    folder = output_dir / ".multirun" / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{os.getpid()}"
    folder.mkdir(parents=True)
    overrides = get_args_parser().parse_intermixed_args(list(arguments)).overrides
    swept = swept_keys(overrides)
    outcomes: dict[int, dict[str, Any]] = {}
    with stop_signals() as received, _start_hydra(arguments, folder) as process:
        n_signals, look_at, at_work = 0, 0.0, True
        while at_work:
            for number in received[n_signals:]:
                n_signals += 1
                replace_text(folder / STOP, str(min(n_signals, 2)))
                again = "; once more ends them at once" if n_signals == 1 else ""
                say(f"{signal.Signals(number).name}: stopping the jobs of the sweep{again}")
                if n_signals > 2:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            time.sleep(POLL_S)
            ended = process.poll() is not None
            if ended or time.monotonic() > look_at:
                look_at = time.monotonic() + LOOK_S
                at_work = not ended or _are_at_work(folder, outcomes)
                _tell_ends(folder, outcomes, swept)
    if received:
        say("stopped; the same command goes on")
        return 128 + received[0]
    return _summary(folder, outcomes, swept, n_jobs(overrides)) or int(process.returncode != 0)


def _summary(
    folder: Path, outcomes: dict[int, dict[str, Any]], swept: Collection[str], n_planned: int | None
) -> int:
    """1 when a job failed, or never began; all is told.

    `n_planned` is None where a search made its jobs one by one.
    """
    vanished = {number: _vanished(folder / str(number)) for number in _lacking(folder, outcomes)}
    ended = dict(sorted((outcomes | vanished).items()))
    failed = {number: outcome for number, outcome in ended.items() if outcome["code"] != 0}
    n_not_begun = max(0, (n_planned or 0) - len(ended))
    counts = f"{len(ended) + n_not_begun} jobs, {len(failed)} failed"
    say(f"sweep: {counts}{f', {n_not_begun} not begun' if n_not_begun else ''}; {folder}")
    for number, outcome in failed.items():
        code = outcome["code"]
        why = "its worker vanished" if code is None else f"exit code {code}"
        say(f"  failed: {number} {_name(outcome, swept)}, {why}")
    return 1 if failed or n_not_begun else 0


def job_of_a_sweep(job: RunJob, hydra: Any) -> float | None:
    """The monitored score of a job, run in a process of its own; None where it has none.

    That is: where it failed or was stopped. Side by side, jobs have `threads=1` unless an override
    says otherwise, a log, and on a machine with several GPUs one each.

    Args:
        job: of this process's configuration.
        hydra: Hydra's own node of it.
    """
    sweep, number = Path(str(hydra.sweep.dir)), int(hydra.job.num)
    folder, stop = sweep / str(number), sweep / STOP
    if stop.exists():
        return None
    launcher = str(hydra.launcher["_target_"]).rpartition(".")[2]
    side_by_side = launcher != "BasicLauncher"
    if side_by_side and job.cfg.threads is None:
        job.cfg.threads = 1
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt" if side_by_side else None
    with held(folder / AT_WORK):
        with _start(job, folder, log, launcher in ON_THIS_MACHINE) as process:
            _wait(process, stop)
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        outcome: dict[str, Any] = {
            "overrides": redacted([*job.overrides]),
            "code": code,
            "stopped": bool(code) and stop.exists(),
            "log": log and str(log),
        }
        if not code:
            run = Path((folder / "folder").read_text(encoding="utf-8"))
            monitor, score = monitored(run)
            outcome |= {"folder": str(run), "monitor": monitor, "score": score}
        write_json(folder / "outcome.json", outcome)
    return outcome.get("score")


def _start(
    job: RunJob, folder: Path, log: Path | None, on_this_machine: bool
) -> subprocess.Popen[bytes]:
    """The process of a job; on this machine it has one of several GPUs, or what there is."""
    given = os.environ.get(DEVICES, "") if on_this_machine else ""
    with device_for(job.cfg, given.split(",") if given else [], True) as (own, locks):
        return start_job(
            job,
            folder / "job.json",
            log,
            command=(*COMMAND, f"--folder={folder / 'folder'}"),
            environment=({VISIBLE: given} if given else {}) | own,
            pass_fds=locks,
            ends_with_us=True,
        )


def _wait(process: subprocess.Popen[bytes], stop: Path) -> None:
    """Wait for a job, and stop it as the file says."""
    parent, n_told = os.getppid(), 0
    try:
        while process.poll() is None:
            if os.getppid() != parent:  # the launcher was killed, and its next job shall not start
                stop.touch()
            if stop.exists() and n_told < (asked := int(stop.read_text(encoding="utf-8") or 1)):
                n_told = asked
                stop_job(process, at_once=asked > 1)
            time.sleep(POLL_S)
    finally:  # without an error it has ended
        stop_job(process)
        process.wait()


def monitored(folder: Path) -> tuple[str, float]:
    """The key and the value of the score that a finished run is judged by."""
    result = read_result(folder)
    return result["monitor"], result["scores"][result["monitor"]]


def watch_the_sweep() -> None:
    """In Hydra's process: stop every job when `run_sweep`, which holds our input, is killed."""
    at_end_of_input((Path(os.environ[SWEEP]) / STOP).touch)


def _start_hydra(arguments: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    sys.stdout.flush()
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "isotrain",
            "train",
            *arguments,
            f"hydra.sweep.dir={written(str(folder))}",
        ],
        stdin=subprocess.PIPE,
        process_group=0,
        env={
            **own_environment(),
            SWEEP: str(folder),
            DEVICES: ",".join(cuda_devices()),  # submitit hides them from jobs on this machine
        },
    )


def _lacking(folder: Path, outcomes: Collection[int]) -> list[int]:
    """The numbers of the jobs that have begun, other than those whose outcomes are known."""
    numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    return [n for n in numbers if n not in outcomes and (folder / str(n) / AT_WORK).exists()]


def _are_at_work(folder: Path, outcomes: Collection[int]) -> bool:
    """Whether a worker waits for its job: some go on when Hydra's process has ended."""
    for number in _lacking(folder, outcomes):
        lock = take(folder / str(number) / AT_WORK)
        if lock is None:
            return True
        os.close(lock)
    return False


def _vanished(folder: Path) -> dict[str, Any]:
    """In place of the outcome of a job whose worker ended without leaving one."""
    overrides: list[str] = []
    with suppress(OSError, ValueError, KeyError):  # it may have ended before it wrote that
        overrides = json.loads((folder / "job.json").read_text(encoding="utf-8"))["overrides"]
    return {"overrides": redacted(overrides), "code": None}


def _tell_ends(folder: Path, outcomes: dict[int, dict[str, Any]], swept: Collection[str]) -> None:
    """Read the outcomes that are new; say which jobs have ended, of those that print into a log."""
    for number in _lacking(folder, outcomes):
        file = folder / str(number) / "outcome.json"
        if not file.is_file():
            continue
        outcomes[number] = outcome = json.loads(file.read_text(encoding="utf-8"))
        if not outcome["log"]:
            continue
        known = outcome.get("score") is not None
        score = f", {outcome['monitor']} {outcome['score']:.4f}" if known else ""
        end = "stopped" if outcome["stopped"] else "failed" if outcome["code"] else "done"
        say(f"{end} {number} {_name(outcome, swept)}{score}; {outcome['log']}")
        for line in last_lines(Path(outcome["log"])) if end == "failed" else ():
            say(f"    {line}")


def _name(outcome: Mapping[str, Any], swept: Collection[str]) -> str:
    """What a job differs in from the others; all of it where a search has not said what varies."""
    own = [text for text in outcome["overrides"] if text.partition("=")[0] in swept]
    return " ".join(own or outcome["overrides"])
