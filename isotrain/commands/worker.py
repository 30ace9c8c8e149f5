"""Execute a run in this process for a command: exit code, messages, page.

Dependencies are imported after validation; `isotrain.jobs.process` preloads them in the warm
server that runs are forked from.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isotrain.config.compose import RunJob, parse_job, read_job
from isotrain.config.foreign import job_of_file
from isotrain.console import FAILED, print_error, reject, spinner
from isotrain.jobs.process import JOB
from isotrain.pages.show import show_run
from isotrain.runs.record import CannotRunError, StorageError
from isotrain.training.requirements import check

LOADING = "importing torch, Lightning and transformers"


def run_file(file: Path | None, is_foreign: bool = False) -> int:
    """The exit code of a job, by default of the environment. Foreign job files are restricted."""
    if file is None and JOB not in os.environ:
        return reject("- is for processes that isotrain starts; give the file of a job")
    try:
        job = parse_job(os.environ[JOB]) if file is None else read_job(file)
        job = job_of_file(job, file) if is_foreign and file is not None else job
    except (ValueError, KeyError, TypeError) as error:
        return reject(str(error).splitlines())
    return run_job(job)


def run_job(job: RunJob) -> int:
    """Exit code of a run: 0, 1 if it failed, 2 if it cannot run, 128 + signal."""
    try:
        check(job.cfg)
    except ValueError as error:
        return reject(str(error).splitlines())
    codes: list[int] = []
    with errors_printed(codes):
        with spinner(LOADING):
            from isotrain.run import run
        run(*job, show=show_run)
    return max(codes, default=0)


@contextmanager
def errors_printed(codes: list[int]) -> Iterator[None]:
    """Print the errors of a run and append its exit code; HYDRA_FULL_ERROR=1 shows a traceback."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    from isotrain.training.callbacks.non_finite import NonFiniteError

    try:
        yield
    except (CannotRunError, PermissionError) as error:
        codes.append(reject(str(error)))
    except KeyboardInterrupt:  # before training could listen, or the second one
        codes.append(128 + signal.SIGINT)
    except (NonFiniteError, StorageError) as error:
        print_error("the run stopped", [str(error)])
        codes.append(FAILED)
