"""Run a sweep as a Slurm array, through Hydra's submitit plug-in: the launcher and its jobs.

The plug-in's launcher ends with the first job that is killed, and resubmits everything when called
again. This one waits for every job: it reads the outcome beside the job's log, and squeue. It
attaches to jobs that an earlier call left in Slurm.
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

POLL_S = 1.0  # between two checks for outcomes, up to 50 runs; longer for more
ASK_S, MOST_S = 5.0, 60.0  # between two calls of squeue, at first and at most
LAG_S = 15.0  # time for a shared file system to show a job's last writes
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
        """Run on a node; the outcome is also written beside its log.

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
        job_return = JobReturn()
        job_return.status = JobStatus.FAILED
        try:
            if self.marker is not None:
                check_shared(self.marker)
            job_return = super().__call__(*arguments)
        except SystemExit as stop:
            is_over = stop.code == 128 + signal.SIGTERM and not _is_running(environment.job_id)
            if is_over or stop.code not in (128 + signal.SIGTERM, 128 + number):
                raise
            try:
                requeue(number, None)
            except submitit.core.utils.UncompletedJobError as error:  # too many time limits
                job_return.return_value = RunError("TIMEOUT", str(error))
            except (subprocess.SubprocessError, OSError) as error:
                message = f"it has a checkpoint, but could not be requeued: {error}"
                job_return.return_value = RunError("TIMEOUT", message)
        except NodeError as error:
            print(error, file=sys.stderr)
            job_return.return_value = RunError("NodeError", str(error))
        if environment.global_rank == 0:
            write_json(outcome, _outcome(job_return))
        if job_return.status != JobStatus.COMPLETED:
            raise SystemExit(1)
        return job_return

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """The `JobReturn` of each run, once all have ended.

        Raises:
            SlurmError: Slurm cannot be asked, or does not take the jobs.
        """
        assert self.config is not None
        if shutil.which("sbatch") is None:
            raise SlurmError("no sbatch on this machine: start it on a login node of the cluster")
        folder = Path(str(self.config.hydra.sweep.dir))
        names = [_name_of(overrides) for overrides in job_overrides]
        with alone(folder), _uninterrupted():
            record = read_jobs(folder)
            states = states_of(job.id for name, job in record.jobs.items() if name in names)
            active_jobs = {
                name: job
                for name, job in record.jobs.items()
                if job.id in states and _is_there(states[job.id], record.outcome(job))
            }
            new = [k for k, name in enumerate(names) if name not in active_jobs]
            new_jobs = self._submit(folder, [job_overrides[k] for k in new], initial_job_idx)
            jobs = record.jobs | {names[k]: job for k, job in zip(new, new_jobs, strict=True)}
            record = SlurmJobs(folder=folder, jobs=jobs)
            write_jobs(record)
        runs = [
            Submitted(
                *(name, overrides, jobs[name].id),
                *(folder / "logs" / f"{name}.log", record.outcome(jobs[name])),
            )
            for name, overrides in zip(names, job_overrides, strict=True)
        ]
        arrays = " ".join(dict.fromkeys(run.id.partition("_")[0] for run in runs))
        note = f", {len(names) - len(new)} were there before" if active_jobs else ""
        try:
            _tell(f"{counted(len(new), 'run')} submitted to Slurm{note}: {arrays}")
            return _wait_for_jobs(runs)
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
        params = dict(self.params)
        additional = {"requeue": True, **(params.pop("additional_parameters", None) or {})}
        params["additional_parameters"] = additional  # whatever JobRequeue of slurm.conf says
        max_runs = _most_runs()
        common_keys = {field.name for field in fields(BaseQueueConf)}
        arguments = [
            (list(overrides), "hydra.sweep.dir", first + k, "", Singleton.get_state())
            for k, overrides in enumerate(batch)
        ]
        try:
            executor = submitit.AutoExecutor(
                folder=params.pop("submitit_folder"),
                cluster="slurm",
                slurm_max_num_timeout=params.pop("max_num_timeout"),
            )
            executor.update_parameters(
                **{key if key in common_keys else f"slurm_{key}": x for key, x in params.items()}
            )
            jobs = [
                job
                for k in range(0, len(arguments), max_runs)
                for job in executor.map_array(self, *zip(*arguments[k : k + max_runs], strict=True))
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
    """The maximum number of runs in an array."""
    command = ["scontrol", "show", "config"]
    with suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
        if match := re.search(r"^MaxArraySize\s*=\s*(\d+)$", output, re.MULTILINE):
            return max(1, int(match[1]) - 1)
    return MOST_RUNS


def _is_there(now: JobState, outcome: Path) -> bool:
    """Whether a job's run is unfinished; one with an outcome is finished, unless it is pending."""
    if now.state == "PENDING":
        outcome.unlink(missing_ok=True)
    return not now.is_over and not outcome.exists()


def _is_running(job: str) -> bool:
    """Whether a job that got SIGTERM is being preempted, and must requeue itself.

    A job that was cancelled or requeued is no longer running. If Slurm does not answer, the job
    counts as running: its run would be lost otherwise.
    """
    try:
        states = states_of([job])
    except SlurmError:
        return True
    return job in states and states[job].state == "RUNNING"


def _outcome(returned: JobReturn) -> dict[str, Any]:
    """The outcome of a run, as plain data."""
    value = returned._return_value
    if returned.status == JobStatus.COMPLETED:
        return {"value": value, "error": None, **placement()}
    kind = value.kind if isinstance(value, RunError) else type(value).__name__
    message = value.message if isinstance(value, RunError) else str(value)
    return {"value": None, "error": [kind, message], **placement()}


def _name_of(overrides: Sequence[str]) -> str:
    """A run's name across calls: its job's name, which ends with its hash; else all overrides."""
    for text in reversed(overrides):
        if key_of(text) == "hydra.job.name":
            return text.partition("=")[2].strip("'\"")
    text = " ".join(overrides)
    return f"{safe_name(text)[:MOST]}-{sha256(text.encode()).hexdigest()[:8]}"


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Block signals: jobs whose ids are not recorded would be submitted twice."""
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait_for_jobs(jobs: Sequence[Submitted]) -> list[JobReturn]:
    """The `JobReturn` of each run; a line is printed as each ends."""
    returns: dict[str, JobReturn] = {}
    ended_at: dict[str, float] = {}  # when Slurm first said that a job is over
    reported: set[tuple[str, str]] = set()  # reasons for which jobs wait
    asked_at, pause, last_error = 0.0, ASK_S, ""
    while True:
        open_jobs = [job for job in jobs if job.id not in returns]
        for job in open_jobs:
            if outcome := _read(job):
                returns[job.id] = _report_end(job, outcome)
                ended_at.pop(job.id, None)
        open_jobs = [job for job in open_jobs if job.id not in returns]
        if not open_jobs:
            return [returns[job.id] for job in jobs]
        if time.monotonic() > asked_at + pause:
            try:
                states = states_of(job.id for job in open_jobs)
            except SlurmError as error:
                if str(error) != last_error:
                    _tell(f"{error}; asking again until it answers")
                last_error = str(error)
            else:
                last_error = ""
                _report_waiting(open_jobs, states, reported)
                for job in open_jobs:
                    state = states.get(job.id)
                    if state is not None and not state.is_over:
                        ended_at.pop(job.id, None)
                    elif time.monotonic() - ended_at.setdefault(job.id, time.monotonic()) >= LAG_S:
                        kind, message = "UNKNOWN", f"Slurm no longer knows job {job.id}"
                        if state is not None:
                            kind = state.state
                            message = f"Slurm ended job {job.id} {state.why}on {state.node}"
                        returns[job.id] = _report_end(
                            job, {"error": [kind, message], "value": None}
                        )
            asked_at, pause = time.monotonic(), ASK_S if ended_at else min(pause * 1.5, MOST_S)
        time.sleep(POLL_S * max(1, len(open_jobs) / 50))


def _report_waiting(
    jobs: Sequence[Submitted], states: dict[str, JobState], reported: set[tuple[str, str]]
) -> None:
    """Print a line for each job that waits for an unusual reason."""
    for job in jobs:
        state = states.get(job.id)
        if state is None or state.reason in USUAL or state.state not in ("PENDING", "SPECIAL_EXIT"):
            continue
        if (job.id, state.reason) not in reported:
            reported.add((job.id, state.reason))
            release = f"; scontrol release {job.id}" if "held" in state.reason.lower() else ""
            _tell(f"waits {job.name.rpartition('-')[0]}: job {job.id}, {state.reason}{release}")


def _tell(text: str) -> None:
    """Print a line now: the next one may take hours."""
    say(text)
    sys.stdout.flush()


def _read(job: Submitted) -> dict[str, Any]:
    """The outcome of a job; empty before its end."""
    with suppress(OSError):
        os.utime(job.outcome.parent)  # NFS looks again at a folder that has changed
    try:
        outcome: dict[str, Any] = read_json(job.outcome)
    except (OSError, ValueError):
        return {}
    return outcome


def _report_end(job: Submitted, outcome: dict[str, Any]) -> JobReturn:
    """The `JobReturn` of a run, after printing a line."""
    job_return = JobReturn()
    job_return.overrides = job.overrides
    job_return.status = JobStatus.FAILED if outcome["error"] else JobStatus.COMPLETED
    job_return.return_value = RunError(*outcome["error"]) if outcome["error"] else outcome["value"]
    name = job.name.rpartition("-")[0]  # without its hash
    if outcome["error"]:
        if not (by_itself := "host" in outcome):
            with suppress(OSError), job.log.open("a", encoding="utf-8") as log:  # for `status`
                log.write(f"{FAILED_LINE}{job_return._return_value}\n")
        _tell(f"failed {name}: {job_return._return_value}; {_logs_of(job, by_itself)}")
    else:
        _tell(f"done {name} (job {job.id} on {outcome['host']})")
    return job_return


def _logs_of(job: Submitted, by_itself: bool) -> str:
    """The path of a run's log, and of its job's log if the run did not end by itself."""
    job_logs = sorted(job.outcome.parent.glob(f"{job.id}_*_log.*"))
    logs = [path for path in (job.log, *job_logs) if path.is_file()]
    if logs:
        return ", ".join(map(str, logs[:1] if by_itself else logs))
    folder = job.outcome.parent.parent
    return f"no log: all nodes must share {folder}; give output_dir=... that they share"
