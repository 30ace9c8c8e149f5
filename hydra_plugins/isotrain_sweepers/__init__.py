"""The sweeper of isotrain: the values of a command line, a study, or a search.

It is the default of `-m`. It plans its runs, gives those that are missing to Hydra's launcher, and
ends with a table. isotrain is imported when it starts: Hydra lists its plug-ins at every command.
"""

import sys
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class IsotrainSweeper(Sweeper):
    """Runs what `study=NAME` or `search=NAME` names, else each combination of values.

    Args:
        only_list: show the runs and launch none.
        params: values of keys, as on a command line, which wins: `{seed: "0,1,2"}`.
    """

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
        own = [f"{key}={value}" for key, value in self._params.items() if key not in given]
        if code := start(*self._given, [*own, *arguments], self._only_list):
            sys.exit(code)


def register() -> None:
    """Make the sweeper known to Hydra, which finds it by itself only when not editable."""
    Plugins.instance().register(IsotrainSweeper)
    target = f"{IsotrainSweeper.__module__}.{IsotrainSweeper.__name__}"
    ConfigStore.instance().store(
        group="hydra/sweeper",
        name="isotrain",
        node={"_target_": target, "only_list": False, "params": None},
        provider="isotrain",
    )
