"""Read and validate the finished run to export, before anything is built. Imports no torch."""

from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from isotrain.config.compose import config_of
from isotrain.runs.files import trained_run


class SourceRun(NamedTuple):
    """A run that can be rebuilt."""

    folder: Path
    result: dict[str, Any]  # its record
    cfg: DictConfig  # of its model


def read_run(folder: Path) -> SourceRun:
    """Read the run of a folder; its record is validated as `isotrain train` would validate it.

    Raises:
        ValueError: no run, not a training run, not finished, without weights; its
            configuration names a target that is not allowed; data or weights are missing.
        DamagedError: the record has been changed since it was written.
    """
    result = trained_run(folder)
    return SourceRun(folder, result, config_of(result))
