"""Sweepers of isotrain: the values of a command line, a study, a search.

`sweep` is the default of `-m`. Each plans its runs, gives those that are missing to Hydra's
launcher, and ends with a table. isotrain is imported when one starts: Hydra lists its plug-ins at
every command.
"""

import sys
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class _IsotrainSweeper(Sweeper):
    """What the three share.

    Args:
        only_list: show the runs and launch none.
        params: values of keys, as on a command line, which wins: `{seed: "0,1,2"}`.
    """

    kind: str

    def __init__(self, only_list: bool = False, params: dict[str, Any] | None = None) -> None:
        self._only_list, self._params = only_list, params or {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what a launcher needs."""
        self._given = config, hydra_context, task_function

    def sweep(self, arguments: list[str]) -> Any:
        """Run it; the process ends with the exit code if that is not 0."""
        from isotrain.commands.sweeps import start

        given = {text.lstrip("+~").partition("=")[0] for text in arguments}
        own = [f"{key}={_text(value)}" for key, value in self._params.items() if key not in given]
        if code := start(self.kind, *self._given, [*own, *arguments], self._only_list):
            sys.exit(code)


def _text(value: Any) -> str:
    """A value of `params` as on a command line; a list is several values."""
    from isotrain.config.compose import written

    if isinstance(value, str):
        return value
    values = OmegaConf.to_container(value) if OmegaConf.is_list(value) else [value]
    assert isinstance(values, list)
    return ",".join(map(written, values))


class SweepSweeper(_IsotrainSweeper):
    """A run for each combination of the values of a command line."""

    kind = "sweep"


class StudySweeper(_IsotrainSweeper):
    """The runs of the study that `study=NAME` or `study=FILE` names."""

    kind = "study"


class SearchSweeper(_IsotrainSweeper):
    """The trials of the search that `search=NAME` or `search=FILE` names."""

    kind = "search"


SWEEPERS = SweepSweeper, StudySweeper, SearchSweeper


def register() -> None:
    """Make the sweepers known to Hydra, which finds them by itself only when not editable."""
    for sweeper in SWEEPERS:
        Plugins.instance().register(sweeper)
        target = f"{sweeper.__module__}.{sweeper.__name__}"
        ConfigStore.instance().store(
            group="hydra/sweeper",
            name=sweeper.kind,
            node={"_target_": target, "only_list": False, "params": None},
            provider="isotrain",
        )
