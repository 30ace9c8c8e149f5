"""A sweep of `isotrain train -m`: one process for Hydra, and behind any launcher one for each job.

`<output_dir>/.multirun/<time>-<pid>/` has `<number>/job.json`, `log.txt` where jobs run side by
side, and `outcome.json` of each job that has ended. Hydra's process stands in a process group of
its own, so that Ctrl-C reaches `run_sweep` alone; it writes the file `stop`, which every job looks
for: launchers kill their workers, and those would take their runs along before a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from isotrain.config.compose import RunJob
from isotrain.config.redaction import redacted
from isotrain.config.sweep import swept_keys
from isotrain.devices import VISIBLE, cuda_devices, device_of
from isotrain.jobs import COMMAND, POLL_S, start_job, stop_job, stop_signals
from isotrain.pages.summary import say
from isotrain.results import read_result, write_json

SWEEP, DEVICES = "ISOTRAIN_SWEEP", "ISOTRAIN_DEVICES"  # environment: folder of a sweep, its GPUs
ON_THIS_MACHINE = ("JoblibLauncher", "LocalLauncher")  # that start jobs side by side
STOP = "stop"  # a file: 1 = every job stops with a checkpoint, 2 = at once
LAST_LINES = 5  # of a failed job's log


def run_sweep(arguments: Sequence[str], output_dir: Path) -> int:
    """0 when every job of `isotrain train <arguments>` is finished, 1 when one failed.

    128 + number after a signal: the first one stops every job with a checkpoint, the second one at
    once. A job that fails stops no other.

    Raises:
        OSError: the folder of the sweep cannot be made.
    """
    folder = output_dir / ".multirun" / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{os.getpid()}"
    folder.mkdir(parents=True)
    swept = swept_keys(get_args_parser().parse_intermixed_args(list(arguments)).overrides)
    told: set[int] = set()
    with stop_signals() as received, _start_hydra(arguments, folder) as process:
        n_signals = 0
        while process.poll() is None:
            for number in received[n_signals:]:
                n_signals += 1
                (folder / STOP).write_text(str(min(n_signals, 2)), encoding="utf-8")
                again = "; once more ends them at once" if n_signals == 1 else ""
                say(f"{signal.Signals(number).name}: stopping the jobs of the sweep{again}")
                if n_signals > 2:
                    os.killpg(process.pid, signal.SIGKILL)
            _tell_ends(folder, told, swept)
            time.sleep(POLL_S)
    _tell_ends(folder, told, swept)
    outcomes = _outcomes(folder)
    if received:
        say("stopped; the same command goes on")
        return 128 + received[0]
    failed = {number: outcome for number, outcome in outcomes.items() if outcome["code"]}
    say(f"sweep: {len(outcomes)} jobs, {len(failed)} failed; {folder}")
    for number, outcome in failed.items():
        say(f"  failed: {number} {_name(outcome, swept)}, exit code {outcome['code']}")
    return 1 if failed or process.returncode else 0


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
    with start_job(
        job,
        folder / "job.json",
        log,
        command=(*COMMAND, f"--folder={folder / 'folder'}"),
        environment=_device(job.cfg, number) if launcher in ON_THIS_MACHINE else {},
        ends_with_us=True,
    ) as process:
        _wait(process, stop)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    outcome: dict[str, Any] = {
        "overrides": redacted([*job.overrides]),
        "code": code,
        "stopped": bool(code) and stop.exists(),
        "log": log and str(log),
    }
    if not code:
        outcome["folder"] = (folder / "folder").read_text(encoding="utf-8")
        outcome |= dict(zip(("monitor", "score"), monitored(Path(outcome["folder"])), strict=True))
    write_json(folder / "outcome.json", outcome)
    return outcome.get("score")


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
    threading.Thread(target=_stop_at_the_end_of_input, daemon=True).start()


def _stop_at_the_end_of_input() -> None:
    while os.read(0, 1024):  # unbuffered: a thread in a buffered read cannot be left at the end
        pass
    (Path(os.environ[SWEEP]) / STOP).touch()


def _start_hydra(arguments: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[1])
    sys.stdout.flush()
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "isotrain",
            "train",
            *arguments,
            f"hydra.sweep.dir={_quoted(folder)}",
        ],
        stdin=subprocess.PIPE,
        process_group=0,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
            SWEEP: str(folder),
            DEVICES: ",".join(cuda_devices()),  # submitit hides them from jobs on this machine
        },
    )


def _quoted(path: Path) -> str:
    """A path as an override holds it, whatever signs it has."""
    return "'" + str(path).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _device(cfg: DictConfig, number: int) -> dict[str, str]:
    """The GPUs that a job sees: its own one of several, or what there is."""
    given = os.environ.get(DEVICES, "")
    if not given:
        return {}
    return {VISIBLE: given} | device_of(cfg, number, given.split(","))


def _outcomes(folder: Path) -> dict[int, dict[str, Any]]:
    """What the jobs that have ended left, by their number."""
    files = sorted(folder.glob("*/outcome.json"), key=lambda file: int(file.parent.name))
    return {int(f.parent.name): json.loads(f.read_text(encoding="utf-8")) for f in files}


def _tell_ends(folder: Path, told: set[int], swept: Collection[str]) -> None:
    """Say which jobs have ended since, of those that print into a log."""
    for number, outcome in _outcomes(folder).items():
        if number in told or not outcome["log"]:
            continue
        told.add(number)
        score = f", {outcome['monitor']} {outcome['score']:.4f}" if outcome.get("score") else ""
        end = "stopped" if outcome["stopped"] else "failed" if outcome["code"] else "done"
        say(f"{end} {number} {_name(outcome, swept)}{score}; {outcome['log']}")
        if end == "failed":
            text = Path(outcome["log"]).read_text(encoding="utf-8", errors="replace")
            for line in [line for line in text.splitlines() if line.strip()][-LAST_LINES:]:
                say(f"    {line}")


def _name(outcome: dict[str, Any], swept: Collection[str]) -> str:
    """What a job differs in from the others; all of it where a search has not said what varies."""
    own = [text for text in outcome["overrides"] if text.partition("=")[0] in swept]
    return " ".join(own or outcome["overrides"])
