"""Runs in Slurm: which job each of them is, and what Slurm says of it.

A launch writes the ids of its jobs into `slurm.json`, so that the next call waits for those that
are still there, and `status` finds them. Nothing of submitit is needed to read them.
"""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, Field

from isotrain.runs.files import write_json
from isotrain.runs.stored import PlanError
from isotrain.studies.record import STRICT, read_record

FILE = "slurm.json"
OUTCOME = "{}_{}_outcome.json"  # by job and launch: another Slurm counts its jobs from 1 again
TIMEOUT_S = 60.0  # of squeue
FORMAT = "%i|%T|%N|%L|%r"
ENDED = (  # states of jobs that will not run again by themselves
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "DEADLINE", "BOOT_FAIL", "REVOKED"),
)


class SlurmError(PlanError):
    """Slurm does not answer, or takes no jobs."""


class SlurmJob(BaseModel):
    """The job of a run; the folder of its log is relative to that of the plan."""

    model_config = STRICT
    id: str  # 12_3, the task of an array; or 12
    folder: str
    launch: str  # what marks the launch that submitted it


class SlurmJobs(BaseModel):
    """Content of a `slurm.json`: the latest job of each run, by Hydra's name of the run."""

    model_config = STRICT
    folder: Path = Field(exclude=True)
    jobs: dict[str, SlurmJob] = {}

    def logs(self, job: SlurmJob) -> Path:
        """The folder of its log."""
        return Path(os.path.normpath(self.folder / job.folder))

    def outcome(self, job: SlurmJob) -> Path:
        """The file that a job writes at its end, next to its log."""
        return self.logs(job) / OUTCOME.format(job.id, job.launch)


class JobState(NamedTuple):
    """State of a job, as Slurm reports it."""

    state: str  # PENDING, RUNNING, CANCELLED, ...
    node: str
    time_left: str
    reason: str  # why it waits, or how it ended

    @property
    def why(self) -> str:
        """Its reason in parentheses and with a space; empty if Slurm names none."""
        return f"({self.reason}) " if self.reason != "None" else ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDED


def read_jobs(folder: Path) -> SlurmJobs:
    """The jobs of a folder, none without the file.

    Raises:
        PlanError: it is damaged, or cannot be read now.
    """
    return read_record(SlurmJobs, folder, FILE) or SlurmJobs(folder=folder)


def write_jobs(jobs: SlurmJobs) -> None:
    """Write the jobs into their folder."""
    write_json(jobs.folder / FILE, jobs.model_dump(mode="json"))


def states_of(ids: Iterable[str]) -> dict[str, JobState]:
    """State of jobs by id, from one squeue call. Slurm forgets a job minutes after its end.

    Raises:
        SlurmError: it cannot be asked.
    """
    arrays = ",".join(dict.fromkeys(text.partition("_")[0] for text in ids))
    if not arrays:
        return {}
    command = ["squeue", "--noheader", "--array", "--states=all", f"--jobs={arrays}", f"-o{FORMAT}"]
    env = {key: x for key, x in os.environ.items() if not key.startswith("SQUEUE_")}  # filters
    try:
        reply = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=env)
    except FileNotFoundError as error:
        raise SlurmError("squeue is not on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"squeue did not answer within {TIMEOUT_S:.0f} s") from error
    if reply.returncode and "Invalid job id" not in reply.stderr:
        raise SlurmError(f"squeue cannot tell: {reply.stderr.strip()}")
    rows = [text.split("|", 4) for text in reply.stdout.splitlines()]
    return {row[0]: JobState(*row[1:]) for row in rows if len(row) == 5}
