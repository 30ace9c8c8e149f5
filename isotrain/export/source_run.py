"""Read and validate the finished run to export, before anything is built. Imports no torch."""

from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from isotrain.config.compose import config_of, plain
from isotrain.runs.files import WEIGHTS_FILE, trained_run


class RoundTripError(RuntimeError):
    """The export does not reproduce the run, and is deleted."""


class SourceRun(NamedTuple):
    """A run that can be rebuilt."""

    folder: Path
    result: dict[str, Any]  # its record
    cfg: DictConfig  # of its model
    config: dict[str, Any]  # complete, as recorded

    @property
    def weights(self) -> Path:
        """Its final weights."""
        return self.folder / WEIGHTS_FILE


def read_run(folder: Path) -> SourceRun:
    """Read the run of a folder; its record is validated as `isotrain train` would validate it.

    Raises:
        ValueError: no run, not a training run, not finished, without weights; its
            configuration names a target that is not allowed; data or weights are missing.
        DamagedError: the record has been changed since it was written.
    """
    result = trained_run(folder)
    cfg = config_of(result)
    whole = plain(cfg)
    cfg.init_from, cfg.logger = None, {}  # the final weights are loaded instead
    cfg.metric, cfg.monitor.headline = {}, None  # nothing is measured
    return SourceRun(folder, result, cfg, whole)
