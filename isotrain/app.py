"""The Hydra app that trains: `train.py task=wic isotropy=clip`, `-m seed=0,1 hydra/launcher=…`.

Hydra composes and launches; only Hydra is imported here, so that `--help` and tab completion are
quick.
"""

import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

import hydra
from omegaconf import DictConfig

from hydra_plugins import isotrain_launchers, isotrain_sweepers
from isotrain.config.schema import RUN
from isotrain.config.shipped import conf_folder
from isotrain.config.typos import NOT_COMPOSED, first_line
from isotrain.console import guarded, reject

FULL_ERROR = "HYDRA_FULL_ERROR"  # set to 1: Hydra raises its errors instead of printing them


@guarded()
def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the app: 0; 1 a run failed; 2 it cannot run; 128 + number of a signal."""
    program, flag = sys.argv, os.environ.get(FULL_ERROR)
    argv = _options_first(program[1:] if arguments is None else arguments)
    RUN.register()
    isotrain_sweepers.register()
    isotrain_launchers.register()
    sys.argv = [program[0], *argv]
    os.environ[FULL_ERROR] = "1"
    if line := os.environ.get("COMP_LINE"):  # of tab completion: `isotrain train isotropy=cl`
        os.environ["COMP_LINE"] = re.sub(r"^(\S+)\s+train\b", r"\1", line)
    try:
        app()
    except (*NOT_COMPOSED, ValueError, AssertionError) as error:
        if flag == "1" or not (messages := _wrong_overrides(argv, error)):
            raise
        return reject(messages)
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        sys.argv = program
        os.environ.pop(FULL_ERROR) if flag is None else os.environ.update({FULL_ERROR: flag})
    return 0


def task(cfg: DictConfig) -> float | None:
    """Train one run; its monitored score, the objective of a sweeper such as Optuna's."""
    from isotrain.commands.train import train

    return train(cfg)


app = hydra.main(config_path=conf_folder(), config_name="train", version_base="1.3")(task)


def _options_first(arguments: Sequence[str]) -> list[str]:
    """The arguments in the order that Hydra's parser requires: overrides last.

    >>> _options_first(["task=wic", "~optimizer.fused", "-m", "seed=0,1", "--config-dir", "mine"])
    ['-m', '--config-dir', 'mine', 'task=wic', '~optimizer.fused', 'seed=0,1']
    """
    overrides = [t for t in arguments if t[:1] == "~" or ("=" in t and t[:1] != "-")]
    return [*(text for text in arguments if text not in overrides), *overrides]


def _wrong_overrides(arguments: Sequence[str], error: Exception) -> list[str]:
    """Every override that does not apply; empty if the error is not from composing."""
    from isotrain.config.compose import ConfigError, wrong_overrides

    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-cd", "--config-dir")
    options, rest = parser.parse_known_args(list(arguments))
    overrides = [text for text in rest if "=" in text and not text.startswith("-")]
    try:
        messages = wrong_overrides(overrides, options.config_dir)
    except ConfigError as config_error:
        return str(config_error).splitlines()
    return messages or [first_line(error)] * isinstance(error, NOT_COMPOSED)
