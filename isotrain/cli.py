"""The commands of `isotrain`. Nothing heavy is imported before one runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from isotrain.config.compose import RunJob, conf_folder, job_text, parse_job, read_job, run_folder
from isotrain.config.schema import RUN, n_processes
from isotrain.config.sweep import check_sweep, is_search
from isotrain.console import FAILED, REJECTED, launched, print_error, reject, spinner
from isotrain.jobs.multirun import SWEEP, job_of_a_sweep, monitored, run_sweep, watch_the_sweep
from isotrain.jobs.process import COMMAND, JOB, own_environment, watch_parent
from isotrain.runs.files import replace_text
from isotrain.training.requirements import check, file_mistakes, late_mistakes_apart

USAGE = """isotrain: fine-tune encoders with isotropy layers and watch every layer

  isotrain train task=wic encoder=minilm isotropy=cluster_pca   one run (python train.py ...)
  isotrain train --help                                         all keys with their values
  isotrain train -m sweep=seeds task=wic                        several runs, a process each
  isotrain study run NAME --jobs 2                              arms × tasks × seeds, to a table
  isotrain study list | status NAME | report NAME               what there is, how far, its table
  isotrain tune run NAME --jobs 2                               a search by the score on dev
  isotrain analyze analysis=NAME encoder=minilm                 analyses of any encoder
  isotrain collect DIR                                          every finished run, in one table
  isotrain report RUN                                           the page of a run, report.html
  isotrain export RUN                                           folders for other libraries
  isotrain doctor [--network] [--json]                          data, encoders and devices in reach
  isotrain demo                                                 two small runs, compared
"""
MAINS = {  # commands of their own: each has a main(arguments) that gives the exit code
    "study": "isotrain.launch.command",
    "analyze": "isotrain.analysis.command",
    "collect": "isotrain.reporting.collect_command",
    "tune": "isotrain.tune.command",
    "report": "isotrain.pages.report_command",
    "export": "isotrain.export.command",
    "doctor": "isotrain.doctor",
}
LOADING = "importing torch, Lightning and transformers"
FOLDER = "--folder="  # of `isotrain job`: a file that receives the folder of the run
failures: list[int] = []  # exit codes of the runs of this process


def main() -> None:
    """The `isotrain` program."""
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command == "train":
        sys.argv = ["isotrain train", *arguments]
        train()
    elif command == "job":  # what studies and jobs of several processes start
        watch_parent()
        _job_of(arguments)
        sys.exit(max(failures, default=0))
    elif command in MAINS:
        sys.exit(import_module(MAINS[command]).main(arguments))
    elif command == "demo":
        _demo(arguments)
    elif command == "--version":
        print(version("isotrain"))
    elif command in ("-h", "--help", "help"):
        print(USAGE)
    else:
        print(f"isotrain: no command {command!r}\n\n{USAGE}", file=sys.stderr)
        sys.exit(REJECTED)


def train() -> None:
    """One run, or several with `-m`, from the overrides of the command line."""
    if SWEEP in os.environ:  # Hydra's process of a sweep that is checked
        watch_the_sweep()
    else:
        sys.argv[1:], sweeps_to = _check(sys.argv[1:])
        if sweeps_to is not None and not launched():
            sys.exit(_sweep(sys.argv[1:], sweeps_to))
    RUN.register()
    hydra.main(version_base="1.3", config_path=conf_folder(), config_name="train")(_job)()
    sys.exit(max(failures, default=0))


def _sweep(arguments: Sequence[str], output_dir: Path) -> int:
    try:
        return run_sweep(arguments, output_dir)
    except OSError as error:
        return reject(f"{error}; choose another output_dir=...")


def _check(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """The arguments, options first, and the output folder of a sweep (None for a single run).

    A command line that cannot run is refused before Hydra starts, every mistake that its keys show
    at once. What only imported parts show is told by the run, of a sweep here: before any job.
    """
    given = get_args_parser().parse_intermixed_args(list(arguments))
    options = list(arguments)
    for override in given.overrides:
        options.remove(override)
    if given.help or given.hydra_help or given.info or given.shell_completion or given.cfg:
        return [*options, *given.overrides], None
    multirun = given.multirun or "hydra.mode=MULTIRUN" in given.overrides
    configs, overrides, mistakes = check_sweep(given.overrides, given.config_dir, multirun)
    if configs:
        mistakes += file_mistakes(configs[0])
    if multirun and not mistakes and not launched():
        with spinner(LOADING):
            late = late_mistakes_apart(configs)
        mistakes += dict.fromkeys(mistake for one in late for mistake in one.mistakes)
    if multirun and is_search(overrides) and launched():
        mistakes.append(
            "a search chooses other values in each process of torchrun or srun; start it once, and "
            "give each trial its processes by trainer.devices=..."
        )
    if mistakes:
        sys.exit(reject(mistakes))
    return [*options, *overrides], Path(str(configs[0].output_dir)) if multirun else None


def _demo(arguments: Sequence[str]) -> None:
    """Both runs of the demo, with the checks and messages of `train`."""
    from isotrain.demo import demo, demo_mistakes

    if {"-h", "--help"} & set(arguments):
        print(USAGE)
        return
    if mistakes := demo_mistakes(arguments):
        sys.exit(reject(mistakes))
    with spinner(LOADING):
        import isotrain.run  # noqa: F401  # what the demo imports
    with _errors_printed():
        demo(arguments)
    sys.exit(max(failures, default=0))


def _job(cfg: DictConfig) -> float | None:
    """The monitored score where there is one: what searches of Hydra's plugins ask for."""
    hydra_config = HydraConfig.get()
    layer = str(hydra_config.runtime.choices["isotropy"])
    arm = "-".join([layer] * (layer != "none" or not cfg.objective) + list(map(str, cfg.objective)))
    own = [s.path for s in hydra_config.runtime.config_sources if s.provider == "command-line"]
    given = [*(f"--config-dir={path}" for path in own), *hydra_config.overrides.task]
    job = RunJob(cfg, arm, given)
    if launched():
        folder = _run(job)
        return None if folder is None else monitored(folder)[1]
    several = n_processes(cfg.trainer) > 1
    if several:
        _share_cores(cfg)
    if hydra_config.mode == RunMode.MULTIRUN:
        return job_of_a_sweep(job, hydra_config)
    if several:
        _become(job)
    _run(job)
    return None


def _job_of(arguments: Sequence[str]) -> None:
    """Run the job of a file, or of the environment."""
    if {"-h", "--help"} & set(arguments):
        print("isotrain job FILE: run a job of a study again, or the run of a result.json")
        return
    files = [text for text in arguments if not text.startswith(FOLDER)]
    try:
        job = read_job(Path(files[0])) if files else parse_job(os.environ.get(JOB, ""))
    except ValueError as error:
        failures.append(reject([str(error)]))
        return
    folder = _run(job)
    for told in (text.removeprefix(FOLDER) for text in arguments if text.startswith(FOLDER)):
        if folder is not None:
            replace_text(Path(told), str(folder))


def _run(job: RunJob) -> Path | None:
    """The folder of a finished run; None where it failed, which is told and counted.

    None too in every process of a run but its first.
    """
    with spinner(LOADING):
        try:
            check(job.cfg)  # imports the parts; what is wrong with them need not wait for Lightning
        except ValueError as error:
            failures.append(reject(str(error).splitlines()))
            return None
        from isotrain.pages.show import show_run
        from isotrain.run import run, with_threads

    with _errors_printed():
        if run(*job, show=show_run, is_checked=True):
            return run_folder(with_threads(job.cfg), job.arm)
    return None


@contextmanager
def _errors_printed() -> Iterator[None]:
    """Print the errors of a run and note its exit code; HYDRA_FULL_ERROR=1 shows a traceback."""
    from isotrain.runs.record import CannotRunError, StorageError
    from isotrain.training.callbacks.non_finite import NonFiniteError

    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        yield
        return
    try:
        yield
    except CannotRunError as error:
        failures.append(reject(str(error)))
    except KeyboardInterrupt:  # before training could listen, or the second one
        sys.exit(128 + signal.SIGINT)
    except (NonFiniteError, StorageError) as error:
        print_error("the run stopped", [str(error)])
        failures.append(FAILED)


def _share_cores(cfg: DictConfig) -> None:
    """Give each process of a run as many threads as there are for it, if no override says."""
    if cfg.threads is None:
        cfg.threads = max(1, n_cores() // n_processes(cfg.trainer))


def _become(job: RunJob) -> NoReturn:
    """Replace this process by that of a run of several processes, `isotrain job`.

    Its ranks are started with that process's command line. Were it this one's, each rank would
    compose, and with `-m` sweep, for itself. The job's text goes by the environment.
    """
    sys.stdout.flush()
    os.execve(sys.executable, COMMAND, own_environment() | {JOB: job_text(job)})


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
