"""The finished run that is exported, judged before anything of it is made. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from isotrain.config.compose import read_job
from isotrain.config.rules import mistakes_in
from isotrain.export.errors import CannotExportError
from isotrain.files import file_mistakes
from isotrain.results import read_result

WANTED = "give the folder of a finished run, runs/<task>/<arm>-<hash>"


class SourceRun(NamedTuple):
    """A run that can be made again."""

    folder: Path
    result: dict[str, Any]  # its record
    cfg: DictConfig

    @property
    def weights(self) -> Path:
        """What it ended with."""
        return self.folder / "last.ckpt"


def read_run(folder: Path) -> SourceRun:
    """The run of a folder; what its record names is judged as `isotrain train` judges it.

    Raises:
        CannotExportError: no run, not a training run, not finished, without weights, or a
            configuration that names what may not be called, or data or weights that are not here.
    """
    try:
        result = read_result(folder)
    except ValueError as error:
        raise CannotExportError(f"{folder}/result.json is not JSON ({error}); {WANTED}") from error
    config = result.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("checkpoint"), dict):
        raise CannotExportError(f"there is no record of a training run in {folder}; {WANTED}")
    if result.get("status") != "finished":
        raise CannotExportError(
            f"a run must be finished, that of {folder} is {result.get('status')}; give its command "
            "again until it ends"
        )
    try:
        cfg = read_job(folder / "result.json").cfg
        cfg.init_from, cfg.logger = None, {}  # the weights are those of the end
        mistakes = mistakes_in(cfg) or file_mistakes(cfg)
    except (ValueError, OmegaConfBaseException) as error:
        raise CannotExportError(f"{folder}/result.json cannot be read: {error}") from error
    if mistakes:
        raise CannotExportError("\n".join(mistakes))
    run = SourceRun(folder, result, cfg)
    if not run.weights.is_file():
        reason = "" if cfg.checkpoint.final else " (checkpoint.final=false)"
        raise CannotExportError(
            f"an export needs the weights that a run ended with, and {run.weights} is not "
            f"there{reason}; give the command of the run with checkpoint.final=true rerun=true"
        )
    return run
