"""Commands: `isotrain train | study | demo`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from isotrain.config.command import check_command
from isotrain.config.compose import RunJob, conf_folder, job_text, parse_job, read_job, run_folder
from isotrain.config.processes import n_processes
from isotrain.config.redaction import redacted
from isotrain.config.schema import register
from isotrain.files import file_mistakes
from isotrain.progress import working
from isotrain.results import read_result

USAGE = """isotrain: fine-tune encoders with isotropy layers and watch every layer

  isotrain train task=wic encoder=minilm isotropy=cluster_pca   one run (python train.py ...)
  isotrain train --help                                         all keys with their values
  isotrain study run NAME --jobs 2                              arms × tasks × seeds, to a table
  isotrain study report NAME                                    the table of what is finished
  isotrain report RUN                                           the page of a run, report.html
  isotrain demo                                                 two small runs, compared
"""
REFUSED, FAILED = 2, 1  # exit codes; after a signal and its checkpoint, 128 + its number
JOB, PARENT = "ISOTRAIN_JOB", "ISOTRAIN_PARENT"  # environment of a job: its text, and a watch
LOADING = "importing torch, Lightning and transformers"
failures: list[int] = []  # exit codes of the jobs of a sweep: one that fails stops no other


def main() -> None:
    """The `isotrain` program."""
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command == "train":
        sys.argv = ["isotrain train", *arguments]
        train()
    elif command == "job":  # what studies and jobs of several processes start
        if os.environ.get(PARENT):
            threading.Thread(target=_stop_with_the_parent, daemon=True).start()
        _job_of(arguments)
        sys.exit(max(failures, default=0))
    elif command == "study":
        from isotrain.study.command import main as study

        sys.exit(study(arguments))
    elif command == "report":
        from isotrain.report import main as report

        sys.exit(report(arguments))
    elif command == "demo":
        _demo(arguments)
    elif command == "--version":
        print(version("isotrain"))
    elif command in ("-h", "--help", "help"):
        print(USAGE)
    else:
        print(f"isotrain: no command {command!r}\n\n{USAGE}", file=sys.stderr)
        sys.exit(REFUSED)


def train() -> None:
    """One run, or several with `-m`, from the overrides of the command line."""
    sys.argv[1:] = _check(sys.argv[1:])
    register()
    hydra.main(version_base="1.3", config_path=conf_folder(), config_name="train")(_job)()
    sys.exit(max(failures, default=0))


def _check(arguments: Sequence[str]) -> list[str]:
    """The arguments, options first; a command line that cannot run is refused before Hydra starts.

    Every mistake is told at once.
    """
    given = get_args_parser().parse_intermixed_args(list(arguments))
    options = list(arguments)
    for override in given.overrides:
        options.remove(override)
    arguments = [*options, *given.overrides]
    if given.help or given.hydra_help or given.info or given.shell_completion or given.cfg:
        return arguments
    cfg, mistakes = check_command(given.overrides, given.config_dir, given.multirun)
    if cfg is not None:
        mistakes += file_mistakes(cfg)
    if mistakes:
        _tell("this cannot run", mistakes)
        sys.exit(REFUSED)
    return arguments


def _demo(arguments: Sequence[str]) -> None:
    """Both runs of the demo, checked and told as `train` does it."""
    from isotrain.demo import demo, demo_mistakes

    if {"-h", "--help"} & set(arguments):
        print(USAGE)
        return
    if mistakes := demo_mistakes(arguments):
        _tell("this cannot run", mistakes)
        sys.exit(REFUSED)
    with working(LOADING):
        import isotrain.run  # noqa: F401  # what the demo imports
    with _failures_as_sentences():
        demo(arguments)
    sys.exit(max(failures, default=0))


def _tell(what: str, lines: Sequence[str]) -> None:
    print(f"isotrain: {what}", *redacted(lines), sep="\n  ", file=sys.stderr)


def _job(cfg: DictConfig) -> dict[str, float]:
    hydra_config = HydraConfig.get()
    layer = str(hydra_config.runtime.choices["isotropy"])
    arm = "-".join([layer] * (layer != "none" or not cfg.objective) + list(map(str, cfg.objective)))
    own = [s.path for s in hydra_config.runtime.config_sources if s.provider == "command-line"]
    given = [*(f"--config-dir={path}" for path in own), *hydra_config.overrides.task]
    job = RunJob(cfg, arm, given)
    if _is_launched() or n_processes(cfg.trainer) == 1:
        return _run(job)
    return _in_a_process(job, of_a_sweep=hydra_config.mode == RunMode.MULTIRUN)


def _job_of(arguments: Sequence[str]) -> None:
    """Run the job of a file, or of the environment."""
    if {"-h", "--help"} & set(arguments):
        print("isotrain job FILE: run a job of a study again, or the run of a result.json")
        return
    try:
        job = read_job(Path(arguments[0])) if arguments else parse_job(os.environ.get(JOB, ""))
    except ValueError as error:
        _tell("this cannot run", [str(error)])
        failures.append(REFUSED)
        return
    _run(job)


def _run(job: RunJob) -> dict[str, float]:
    """The scores of a run; none where it failed, which is told and counted."""
    with working(LOADING):
        from isotrain.run import run

    scores: dict[str, float] = {}
    with _failures_as_sentences():
        scores = run(*job)
    return scores


@contextmanager
def _failures_as_sentences() -> Iterator[None]:
    """Tell what a run raises, and note its exit code; HYDRA_FULL_ERROR=1 shows a traceback."""
    from isotrain.record import CannotRunError, StorageError
    from isotrain.training.faults import NonFiniteError

    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    try:
        yield
    except CannotRunError as error:
        _tell("this cannot run", str(error).splitlines())
        failures.append(REFUSED)
    except KeyboardInterrupt:  # before training could listen, or the second one
        sys.exit(128 + signal.SIGINT)
    except (NonFiniteError, StorageError) as error:
        _tell("the run stopped", [str(error)])
        failures.append(FAILED)


def _is_launched() -> bool:
    """Whether a launcher (torchrun, srun) has started one process for each rank already."""
    interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    by_slurm = "SLURM_NTASKS" in os.environ and not interactive
    return by_slurm or "RANK" in os.environ or "LOCAL_RANK" in os.environ


def _in_a_process(job: RunJob, of_a_sweep: bool) -> dict[str, float]:
    """Run a job of several processes in one of its own, `isotrain job`.

    Its ranks are started with that process's command line. Were it this one's, each rank would
    compose, and with `-m` sweep, for itself. The job's text goes by the environment. A single
    run replaces this process; a job of a sweep ends with it.
    """
    cfg = job.cfg
    if cfg.threads is None:  # as many as there are for each
        cfg.threads = max(1, n_cores() // n_processes(cfg.trainer))
    root = str(Path(__file__).resolve().parents[1])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        JOB: job_text(job),
    }
    command = [sys.executable, "-m", "isotrain", "job"]
    if not of_a_sweep:
        sys.stdout.flush()
        os.execve(sys.executable, command, environment)
    child = subprocess.Popen(
        command,
        env=environment | {PARENT: "1"},
        stdin=subprocess.PIPE,
        process_group=0,  # Ctrl-C reaches this process alone, which passes it on
    )

    def pass_on(number: int, _frame: Any) -> None:
        child.send_signal(number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    earlier = [signal.signal(number, pass_on) for number in numbers]
    try:
        code = child.wait()
    finally:
        for number, handler in zip(numbers, earlier, strict=True):
            signal.signal(number, handler)
    if code < 0 or code > 128:  # by a signal: that ends the sweep
        sys.exit(code if code > 0 else 128 - code)
    if code:
        failures.append(code)
        return {}
    return dict(read_result(run_folder(cfg, job.arm))["scores"])


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _stop_with_the_parent() -> None:
    """Wait for the end of the parent, whose pipe is our input, and stop with a checkpoint."""
    while os.read(0, 1024):  # unbuffered: a thread in a buffered read cannot be left at the end
        pass
    os.kill(os.getpid(), signal.SIGTERM)
