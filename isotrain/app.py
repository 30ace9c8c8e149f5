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
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.isotrain_sweepers import register
from isotrain.config.schema import RUN
from isotrain.config.shipped import conf_folder

FULL_ERROR = "HYDRA_FULL_ERROR"  # set to 1: Hydra raises its errors instead of printing them


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the app: 0; 1 a run failed; 2 it cannot run; 128 + number of a signal."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    program, shown = sys.argv[0], os.environ.get(FULL_ERROR)
    sys.argv = [program, *given]
    os.environ[FULL_ERROR] = "1"
    RUN.register()
    register()
    try:
        app()
    except (HydraException, OmegaConfBaseException) as error:
        if shown == "1":
            raise
        return _rejected(given, error)
    except SystemExit as end:
        if end.code == 2 and (wrong := _options(given)):
            print(f"isotrain: write {' '.join(wrong)}", file=sys.stderr)
        return int(end.code or 0)
    return 0


def task(cfg: DictConfig) -> float | None:
    """Train one run; its monitored score, the objective of a sweeper such as Optuna's."""
    from isotrain.commands.train import train

    return train(cfg)


app = hydra.main(config_path=conf_folder(), config_name="train", version_base="1.3")(task)


def _options(arguments: Sequence[str]) -> list[str]:
    """Keys that were given as options, as they are to be written.

    >>> _options(["--seed=3", "task=rte", "--config-dir=mine"])
    ['seed=3']
    """
    found = (re.fullmatch(r"-+([a-z_.]+=.*)", text) for text in arguments)
    return [one[1] for one in found if one]


def _rejected(arguments: Sequence[str], error: Exception) -> int:
    """Exit code 2, after every override that does not apply was told."""
    from isotrain.config.compose import mistakes_of
    from isotrain.config.typos import first_line
    from isotrain.console import reject

    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    options, rest = parser.parse_known_args(list(arguments))
    overrides = [text for text in rest if not text.startswith("-")]
    return reject(mistakes_of(overrides, options.config_dir) or [first_line(error)])
