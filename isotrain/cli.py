"""Commands: `isotrain train | study | demo`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from isotrain.config.command import check_command
from isotrain.config.compose import conf_folder, read_job, write_job
from isotrain.config.schema import register
from isotrain.files import file_mistakes

USAGE = """isotrain: fine-tune encoders with isotropy layers and watch every layer

  isotrain train task=wic encoder=minilm isotropy=cluster_pca   one run (python train.py ...)
  isotrain train --help                                         all keys with their values
  isotrain study run NAME --jobs 2                              arms × tasks × seeds, to a table
  isotrain study report NAME                                    the table of what is finished
  isotrain demo                                                 two small runs, compared
"""
REFUSED, FAILED = 2, 1  # exit codes; after a signal and its checkpoint, 128 + its number
LAUNCHED = ("RANK", "LOCAL_RANK", "SLURM_PROCID")  # a launcher has made the processes already


def main() -> None:
    """The `isotrain` program."""
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command == "train":
        sys.argv = ["isotrain train", *arguments]
        train()
    elif command == "job":  # what studies and distributed runs start: a file of write_job
        cfg, arm = read_job(Path(arguments[0]))
        _run(cfg, arm)
    elif command == "study":
        from isotrain.study.command import main as study

        sys.exit(study(arguments))
    elif command == "demo":
        from isotrain.demo import demo

        demo(arguments)
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


def _check(arguments: Sequence[str]) -> list[str]:
    """The arguments, options first; a command line that cannot run is refused before Hydra starts.

    Every mistake is told at once.
    """
    given = get_args_parser().parse_intermixed_args(list(arguments))
    options = list(arguments)
    for override in given.overrides:
        options.remove(override)
    arguments = [*options, *given.overrides]
    if given.help or given.hydra_help or given.info or given.shell_completion:
        return arguments
    cfg, mistakes = check_command(given.overrides, given.config_dir, given.multirun)
    if cfg is not None:
        mistakes += file_mistakes(cfg)
    if mistakes:
        _refuse(mistakes)
    return arguments


def _refuse(mistakes: Sequence[str]) -> None:
    print("isotrain: this cannot run", *mistakes, sep="\n  ", file=sys.stderr)
    sys.exit(REFUSED)


def _job(cfg: DictConfig) -> dict[str, float]:
    arm = str(HydraConfig.get().runtime.choices["isotropy"])
    several = str(cfg.trainer.get("devices", 1)) != "1"
    if several and not any(name in os.environ for name in LAUNCHED):
        return _in_a_process(cfg, arm)
    return _run(cfg, arm)


def _run(cfg: DictConfig, arm: str) -> dict[str, float]:
    """A run whose failures read as sentences; HYDRA_FULL_ERROR=1 shows where they come from."""
    from isotrain.run import CannotRunError, StorageError, run
    from isotrain.training.faults import NonFiniteError

    try:
        return run(cfg, arm)
    except (CannotRunError, ValueError) as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1" or not isinstance(error, CannotRunError):
            raise
        _refuse(str(error).splitlines())
    except (NonFiniteError, StorageError) as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        print(f"isotrain: the run stopped\n  {error}", file=sys.stderr)
        sys.exit(FAILED)
    return {}


def _in_a_process(cfg: DictConfig, arm: str) -> dict[str, float]:
    """Run a job of several processes in one of its own.

    Its ranks are started with that process's command line. Were it this one's, each rank would
    compose, and with `-m` sweep, for itself.
    """
    with tempfile.TemporaryDirectory(prefix="isotrain-") as folder:
        path = Path(folder) / "job.json"
        write_job(cfg, arm, path)
        root = str(Path(__file__).resolve().parents[1])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        child = subprocess.Popen(
            [sys.executable, "-m", "isotrain", "job", str(path)],
            env={**os.environ, "PYTHONPATH": paths},
            process_group=0,  # Ctrl-C reaches this process alone, which passes it on
        )

        def pass_on(number: int, _frame: Any) -> None:
            child.send_signal(number)

        numbers = (signal.SIGTERM, signal.SIGINT)
        earlier = [signal.signal(number, pass_on) for number in numbers]
        try:
            code = child.wait()
        finally:
            for number, handler in zip(numbers, earlier, strict=True):
                signal.signal(number, handler)
    if code:
        sys.exit(code if code > 0 else 128 - code)
    return {}
