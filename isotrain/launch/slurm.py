"""Runs as an array of Slurm, by Hydra's plug-in for submitit: what waits, and what a node does.

The plug-in's launcher ends with the first job that is killed, and submits a study anew when the
call is given again. This one waits for every job, by the outcome that it writes beside its log and
by squeue, and attaches to jobs that an earlier call has left in Slurm.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher

from isotrain.config.compose import key_of
from isotrain.console import counted, say
from isotrain.launch.nodes import NodeError, check_shared, marker_of
from isotrain.runs.files import read_json, write_json
from isotrain.runs.record import placement
from isotrain.studies.call import RunError, alone, safe_name
from isotrain.studies.slurm import (
    OUTCOME,
    TIMEOUT_S,
    JobState,
    SlurmError,
    SlurmJob,
    SlurmJobs,
    read_jobs,
    states_of,
    write_jobs,
)
from isotrain.studies.status import FAILED_LINE

POLL_S = 1.0  # between two looks for outcomes, of 50 runs; longer for more
ASK_S, MOST_S = 5.0, 60.0  # between two calls of squeue, at first and at most
LAG_S = 15.0  # in which a shared file system shows what a job wrote at its end
USUAL = ("None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime")  # all wait for these
MOST_RUNS = 1000  # of an array, where Slurm does not say: one less than its default MaxArraySize
MOST = 80  # letters of a name


class Submitted(NamedTuple):
    """A run in Slurm."""

    name: str
    overrides: Sequence[str]
    id: str
    log: Path  # of the run
    outcome: Path  # file of its job, next to the log of the job


class SlurmArray(SlurmLauncher):  # type: ignore[misc]
    """The plug-in's launcher. A copy of it is pickled for each job, which calls it."""

    marker: Path | None = None  # a file of the launcher, which the nodes must see
    mark = ""  # of the launch

    def __call__(self, *arguments: Any) -> JobReturn:
        """Run on a node; how it ended is also written beside its log.

        A run that stopped with a checkpoint is requeued: at its time limit, or if it is preempted.

        Raises:
            SystemExit: the run failed, so that Slurm knows it.
        """
        import submitit

        environment = submitit.JobEnvironment()
        outcome = environment.paths.folder / OUTCOME.format(environment.job_id, self.mark)
        if environment.global_rank == 0:
            outcome.unlink(missing_ok=True)  # of this job before it was requeued
        number = signal.Signals[f"SIG{environment.USR_SIG}"]
        requeue: Any = signal.signal(number, _stop)  # of submitit; it exits
        signal.signal(signal.SIGTERM, _stop)
        returned = JobReturn()
        returned.status = JobStatus.FAILED
        try:
            if self.marker is not None:
                check_shared(self.marker)
            returned = super().__call__(*arguments)
        except SystemExit as stop:
            is_over = stop.code == 128 + signal.SIGTERM and not _is_running(environment.job_id)
            if is_over or stop.code not in (128 + signal.SIGTERM, 128 + number):
                raise
            try:
                requeue(number, None)
            except submitit.core.utils.UncompletedJobError as error:  # too many time limits
                returned.return_value = RunError("TIMEOUT", str(error))
            except (subprocess.SubprocessError, OSError) as error:
                message = f"it has a checkpoint, but could not be requeued: {error}"
                returned.return_value = RunError("TIMEOUT", message)
        except NodeError as error:
            print(error, file=sys.stderr)
            returned.return_value = RunError("NodeError", str(error))
        if environment.global_rank == 0:
            write_json(outcome, _outcome(returned))
        if returned.status != JobStatus.COMPLETED:
            raise SystemExit(1)
        return returned

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """How each run ended, once all have.

        Raises:
            SlurmError: Slurm cannot be asked, or does not take the jobs.
        """
        assert self.config is not None
        if shutil.which("sbatch") is None:
            raise SlurmError("no sbatch on this machine: start it on a login node of the cluster")
        folder = Path(str(self.config.hydra.sweep.dir))
        names = [_name_of(overrides) for overrides in job_overrides]
        with alone(folder), _uninterrupted():
            known = read_jobs(folder)
            told = states_of(job.id for name, job in known.jobs.items() if name in names)
            there = {
                name: job
                for name, job in known.jobs.items()
                if job.id in told and _is_there(told[job.id], known.outcome(job))
            }
            new = [k for k, name in enumerate(names) if name not in there]
            ids = self._submit(folder, [job_overrides[k] for k in new], initial_job_idx)
            jobs = known.jobs | {names[k]: job for k, job in zip(new, ids, strict=True)}
            known = SlurmJobs(folder=folder, jobs=jobs)
            write_jobs(known)
        own = [
            Submitted(
                *(name, overrides, jobs[name].id),
                *(folder / "logs" / f"{name}.log", known.outcome(jobs[name])),
            )
            for name, overrides in zip(names, job_overrides, strict=True)
        ]
        arrays = " ".join(dict.fromkeys(job.id.partition("_")[0] for job in own))
        n_there = f", {len(names) - len(new)} were there before" if there else ""
        try:
            _tell(f"{counted(len(new), 'run')} submitted to Slurm{n_there}: {arrays}")
            return _ended(own)
        except (KeyboardInterrupt, SystemExit) as stop:
            stop.add_note(f"its jobs stay in Slurm, and scancel {arrays} cancels them")
            raise

    def _submit(
        self, folder: Path, batch: Sequence[Sequence[str]], first: int
    ) -> Sequence[SlurmJob]:
        """Submit runs as one array."""
        import submitit

        if not batch:
            return []
        self.marker, self.mark = marker_of(folder), token_hex(4)
        given = dict(self.params)
        more = {"requeue": True, **(given.pop("additional_parameters", None) or {})}
        given["additional_parameters"] = more  # whatever JobRequeue of slurm.conf says
        most = _most_runs()
        of_all = {field.name for field in fields(BaseQueueConf)}
        arguments = [
            (list(overrides), "hydra.sweep.dir", first + k, "", Singleton.get_state())
            for k, overrides in enumerate(batch)
        ]
        try:
            executor = submitit.AutoExecutor(
                folder=given.pop("submitit_folder"),
                cluster="slurm",
                slurm_max_num_timeout=given.pop("max_num_timeout"),
            )
            executor.update_parameters(
                **{key if key in of_all else f"slurm_{key}": x for key, x in given.items()}
            )
            jobs = [
                job
                for k in range(0, len(arguments), most)
                for job in executor.map_array(self, *zip(*arguments[k : k + most], strict=True))
            ]
        except (RuntimeError, ValueError) as error:  # of sbatch, or of a parameter
            raise SlurmError(f"Slurm does not take the jobs: {str(error).strip()}") from error
        return [
            SlurmJob(
                id=job.job_id,
                folder=os.path.relpath(job.paths.folder, folder.absolute()),
                launch=self.mark,
            )
            for job in jobs
        ]


def _stop(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)


def _most_runs() -> int:
    """The number of runs that an array may have."""
    line = ["scontrol", "show", "config"]
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
        if found := re.search(r"^MaxArraySize\s*=\s*(\d+)$", told, re.MULTILINE):
            return max(1, int(found[1]) - 1)
    return MOST_RUNS


def _is_there(now: JobState, outcome: Path) -> bool:
    """Whether a job has yet to end its run; one with an outcome has not, unless it waits again."""
    if now.state == "PENDING":
        outcome.unlink(missing_ok=True)
    return not now.is_over and not outcome.exists()


def _is_running(job: str) -> bool:
    """Whether a job that was asked to end is to be requeued by itself: it is being preempted.

    One that was cancelled or requeued is no longer running. Where Slurm cannot be asked, the job
    is taken to run: its run would be lost otherwise.
    """
    try:
        told = states_of([job])
    except SlurmError:
        return True
    return job in told and told[job].state == "RUNNING"


def _outcome(returned: JobReturn) -> dict[str, Any]:
    """The outcome of a run, as plain data."""
    value = returned._return_value
    if returned.status == JobStatus.COMPLETED:
        return {"value": value, "error": None, **placement()}
    kind = value.kind if isinstance(value, RunError) else type(value).__name__
    message = value.message if isinstance(value, RunError) else str(value)
    return {"value": None, "error": [kind, message], **placement()}


def _name_of(overrides: Sequence[str]) -> str:
    """What names a run in any call: its job's name, which ends with its hash; else of all of it."""
    for text in reversed(overrides):
        if key_of(text) == "hydra.job.name":
            return text.partition("=")[2].strip("'\"")
    text = " ".join(overrides)
    return f"{safe_name(text)[:MOST]}-{sha256(text.encode()).hexdigest()[:8]}"


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals wait: jobs whose ids are not on record would be submitted twice."""
    waiting = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(jobs: Sequence[Submitted]) -> list[JobReturn]:
    """How runs ended, each told as it ends."""
    returned: dict[str, JobReturn] = {}
    gone: dict[str, float] = {}  # when Slurm first said that a job is over
    said: set[tuple[str, str]] = set()  # reasons for which jobs wait
    asked_at, pause, trouble = 0.0, ASK_S, ""
    while True:
        left = [job for job in jobs if job.id not in returned]
        for job in left:
            if outcome := _read(job):
                returned[job.id] = _told(job, outcome)
        left = [job for job in left if job.id not in returned]
        if not left:
            return [returned[job.id] for job in jobs]
        if time.monotonic() > asked_at + pause:
            try:
                told = states_of(job.id for job in left)
            except SlurmError as error:
                if str(error) != trouble:
                    _tell(f"{error}; asking again until it answers")
                trouble = str(error)
            else:
                trouble = ""
                _tell_what_waits(left, told, said)
                for job in left:
                    state = told.get(job.id)
                    if state is not None and not state.is_over:
                        gone.pop(job.id, None)
                    elif time.monotonic() - gone.setdefault(job.id, time.monotonic()) >= LAG_S:
                        how, message = "UNKNOWN", f"Slurm no longer knows job {job.id}"
                        if state is not None:
                            how = state.state
                            message = f"Slurm ended job {job.id} {state.why}on {state.node}"
                        returned[job.id] = _told(job, {"error": [how, message], "value": None})
            asked_at, pause = time.monotonic(), ASK_S if gone else min(pause * 1.5, MOST_S)
        time.sleep(POLL_S * max(1, len(left) / 50))


def _tell_what_waits(
    jobs: Sequence[Submitted], told: dict[str, JobState], said: set[tuple[str, str]]
) -> None:
    """A line on each job that waits for more than its turn."""
    for job in jobs:
        now = told.get(job.id)
        if now is None or now.reason in USUAL or now.state not in ("PENDING", "SPECIAL_EXIT"):
            continue
        if (job.id, now.reason) not in said:
            said.add((job.id, now.reason))
            release = f"; scontrol release {job.id}" if "held" in now.reason.lower() else ""
            _tell(f"waits {job.name.rpartition('-')[0]}: job {job.id}, {now.reason}{release}")


def _tell(text: str) -> None:
    """Print a line now: the next one may take hours."""
    say(text)
    sys.stdout.flush()


def _read(job: Submitted) -> dict[str, Any]:
    """The outcome of a job; empty before its end."""
    with suppress(OSError):
        os.utime(job.outcome.parent)  # NFS looks again at a folder that has changed
    try:
        found: dict[str, Any] = read_json(job.outcome)
    except (OSError, ValueError):
        return {}
    return found


def _told(job: Submitted, outcome: dict[str, Any]) -> JobReturn:
    """How a run ended, for Hydra, after a line on the terminal."""
    returned = JobReturn()
    returned.overrides = job.overrides
    returned.status = JobStatus.FAILED if outcome["error"] else JobStatus.COMPLETED
    returned.return_value = RunError(*outcome["error"]) if outcome["error"] else outcome["value"]
    name = job.name.rpartition("-")[0]  # without its hash
    if outcome["error"]:
        if not (by_itself := "host" in outcome):
            with suppress(OSError), job.log.open("a", encoding="utf-8") as log:  # for `status`
                log.write(f"{FAILED_LINE}{returned._return_value}\n")
        _tell(f"failed {name}: {returned._return_value}; {_logs_of(job, by_itself)}")
    else:
        _tell(f"done {name} (job {job.id} on {outcome['host']})")
    return returned


def _logs_of(job: Submitted, by_itself: bool) -> str:
    """Where the log of a run is, and that of its job if the run did not end by itself."""
    of_job = sorted(job.outcome.parent.glob(f"{job.id}_*_log.*"))
    logs = [path for path in (job.log, *of_job) if path.is_file()]
    if logs:
        return ", ".join(map(str, logs[:1] if by_itself else logs))
    folder = job.outcome.parent.parent
    return f"no log: all nodes must share {folder}; give output_dir=... that they share"
