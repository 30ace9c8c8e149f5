"""The commands of `isotrain`. Nothing heavy is imported before one runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple, NoReturn

REJECTED = 2  # exit code of a command that cannot run
LOADING = "importing torch, Lightning and transformers"


class Command(NamedTuple):
    """A command: where it is, what it takes, and what it does."""

    main: str  # module:function of the arguments, which gives the exit code
    takes: str
    does: str


COMMANDS = {
    "train": Command(
        "isotrain.cli:train_of",
        "[key=value ...] [-m [--jobs N]] [--config-dir DIR]",
        "one run, or with -m one for each combination of values (--help: all keys)",
    ),
    "run": Command(
        "isotrain.commands.plans:run",
        "[NAME] [key=value ...] [--jobs N] [--list] [--trials N] [--name NAME] [--config-dir DIR]",
        "a study (methods × tasks × seeds, to a table), a search or a job; no NAME: what there is",
    ),
    "evaluate": Command(
        "isotrain.commands.evaluate:main",
        "RUN | [key=value ...]",
        "the scores of a finished run or an encoder, on dev and test, without training",
    ),
    "status": Command(
        "isotrain.commands.plans:status",
        "NAME [key=value ...] [--jobs N] [--watch] [--json]",
        "how far a run, study, search or folder is, and the time left",
    ),
    "report": Command(
        "isotrain.commands.plans:report",
        "NAME [key=value ...] [--wandb PROJECT] [--json]",
        "the page of a run, also to W&B; the tables of a study, search or folder",
    ),
    "cancel": Command(
        "isotrain.commands.plans:cancel",
        "NAME [key=value ...]",
        "stop what is at work on a run, study, search or sweep, with checkpoints",
    ),
    "collect": Command(
        "isotrain.reporting.collect_command:main",
        "DIR [--out FOLDER] [--json]",
        "every finished run below a folder, in one table",
    ),
    "analyze": Command(
        "isotrain.analysis.command:main",
        "analysis=NAME [key=value ...] [--config-dir=DIR] | list | keys NAME",
        "a published analysis of any encoder",
    ),
    "export": Command(
        "isotrain.export.command:main",
        "RUN [--to DIR] [--format NAME]",
        "folders for transformers and sentence-transformers",
    ),
    "doctor": Command(
        "isotrain.doctor:main",
        "[--network] [--json] [output_dir=DIR]",
        "what is installed and in reach",
    ),
    "demo": Command("isotrain.cli:demo", "[key=value ...]", "two small runs, compared"),
}


def main() -> None:
    """The `isotrain` program."""
    _check_platform()
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command in COMMANDS:
        module, _, name = COMMANDS[command].main.partition(":")
        sys.exit(getattr(import_module(module), name)(arguments))
    if command == "--version":
        print(version("isotrain"))
    elif command in ("-h", "--help", "help"):
        print(usage())
    else:
        print(f"isotrain: no command {command!r}\n\n{usage()}", file=sys.stderr)
        sys.exit(REJECTED)


def usage() -> str:
    """Every command with what it takes."""
    head = "isotrain: fine-tune encoders with isotropy layers and watch every layer"
    lines = [f"  isotrain {name} {c.takes}\n      {c.does}" for name, c in COMMANDS.items()]
    return "\n".join([head, "", *lines, "", "isotrain COMMAND --help tells more of one."])


def train() -> None:
    """`python train.py`: one run, or several with `-m`, from the overrides of the command line."""
    _check_platform()
    sys.exit(train_of(sys.argv[1:]))


def train_of(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain train`.

    A command line that cannot run is rejected before anything starts, with every mistake that its
    keys show at once. What only imported parts show is told by the run; of a sweep before any job.
    """
    from isotrain.config.command import composed_jobs
    from isotrain.config.sweep import check_sweep
    from isotrain.console import launched, reject
    from isotrain.training.requirements import file_mistakes

    parser = argparse.ArgumentParser(prog="isotrain train", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--config-dir", "-cd")
    given, others = parser.parse_known_args(arguments)
    if any(text.startswith("-") for text in others):  # --help, --cfg, --info and the like
        return _hydra(arguments)
    overrides = [*given.overrides, *others]
    configs, overrides, mistakes = check_sweep(overrides, given.config_dir, given.multirun)
    if configs:
        mistakes += file_mistakes(configs[0])
    if given.jobs is not None and (not given.multirun or given.jobs < 1):
        mistakes.append(f"--jobs {given.jobs} is the number of runs at a time of -m, at least 1")
    if given.multirun and launched():
        mistakes.append(
            "-m starts a process for each run, and this is one of torchrun or srun; start it once, "
            "and give each run its processes by trainer.devices=..."
        )
    if mistakes:
        return reject(mistakes)
    if given.multirun:
        from isotrain.jobs.stored import PlanError
        from isotrain.studies.sweep import run_sweep

        try:
            return run_sweep(overrides, given.jobs or 1, given.config_dir)
        except (PlanError, OSError) as error:
            return reject(str(error))
    return _run(*composed_jobs(overrides, given.config_dir)[0])


def _run(cfg: object, arm: str, overrides: list[str]) -> int:
    """The exit code of one run, in this process or as the ranks of another."""
    from isotrain.config.compose import RunJob
    from isotrain.config.schema import n_processes
    from isotrain.console import launched, spinner

    job = RunJob(cfg, arm, overrides)  # type: ignore[arg-type]
    if not launched() and (n := n_processes(job.cfg.trainer)) > 1:
        if job.cfg.threads is None:
            job.cfg.threads = max(1, n_cores() // n)
        _become(job)
    with spinner(LOADING):
        from isotrain.commands.worker import run_job
    return run_job(job)


def _hydra(arguments: Sequence[str]) -> int:
    """Hydra's own options: help with all keys, the composed configuration, its search path."""
    import hydra

    from isotrain.config.compose import conf_folder
    from isotrain.config.schema import RUN
    from isotrain.console import reject

    sys.argv = ["isotrain train", *arguments]
    RUN.register()

    def run(cfg: object) -> None:
        sys.exit(reject("these options start no run; give key=value, -m, --jobs and --config-dir"))

    hydra.main(version_base="1.3", config_path=conf_folder(), config_name="train")(run)()
    return 0


def demo(arguments: Sequence[str]) -> int:
    """The exit code of both runs of the demo, with the checks and messages of `train`."""
    from isotrain.console import reject, spinner
    from isotrain.demo import demo, demo_mistakes

    if {"-h", "--help"} & set(arguments):
        print(usage())
        return 0
    if mistakes := demo_mistakes(arguments):
        return reject(mistakes)
    with spinner(LOADING):
        from isotrain.commands.worker import errors_printed
    codes: list[int] = []
    with errors_printed(codes):
        demo(arguments)
    return max(codes, default=0)


def _become(job: object) -> NoReturn:
    """Replace this process by that of a run of several processes, `isotrain run -`.

    Its ranks are started with that process's command line. Were it this one's, each rank would
    compose for itself. The job's text goes by the environment.
    """
    from isotrain.config.compose import job_text
    from isotrain.jobs.process import COMMAND, JOB, own_environment

    sys.stdout.flush()
    given = own_environment() | {JOB: job_text(job)}  # type: ignore[arg-type]
    os.execve(sys.executable, [*COMMAND, "-"], given)


def _check_platform() -> None:
    if os.name != "posix":
        sys.exit("isotrain runs on Linux and macOS; on Windows use WSL (the Linux subsystem)")


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
