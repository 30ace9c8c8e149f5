"""Sweepers of isotrain: the values of a command line, a study, a search.

`sweep` is the default of `-m`. Each plans its runs, gives those that are missing to Hydra's
launcher, and ends with a table. isotrain is imported when one starts: Hydra lists its plug-ins at
every command.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class _IsotrainSweeper(Sweeper):
    """What the three share.

    Args:
        only_list: show the runs and launch none.
        params: values of keys, as on a command line, which wins: `{seed: "0,1,2"}`.
    """

    start: Callable[..., int]  # of isotrain.commands.sweeps

    def __init__(self, only_list: bool = False, params: dict[str, Any] | None = None) -> None:
        self._only_list, self._params = only_list, params or {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what a launcher needs."""
        self._given = config, hydra_context, task_function

    def sweep(self, arguments: list[str]) -> Any:
        """Run it; the process ends with the exit code if that is not 0."""
        if code := self._run([*self._of_params(arguments), *arguments]):
            sys.exit(code)

    def _run(self, arguments: Sequence[str]) -> int:
        raise NotImplementedError

    def _of_params(self, arguments: Sequence[str]) -> list[str]:
        given = {text.lstrip("+~").partition("=")[0] for text in arguments}
        return [f"{key}={value}" for key, value in self._params.items() if key not in given]


class SweepSweeper(_IsotrainSweeper):
    """A run for each combination of the values of a command line."""

    def _run(self, arguments: Sequence[str]) -> int:
        from isotrain.commands.sweeps import run_sweep

        return run_sweep(*self._given, arguments, self._only_list)


class StudySweeper(_IsotrainSweeper):
    """The runs of the study that `study=NAME` or `study=FILE` names."""

    def _run(self, arguments: Sequence[str]) -> int:
        from isotrain.commands.sweeps import run_study

        return run_study(*self._given, arguments, self._only_list)


class SearchSweeper(_IsotrainSweeper):
    """The trials of the search that `search=NAME` or `search=FILE` names."""

    def _run(self, arguments: Sequence[str]) -> int:
        from isotrain.commands.sweeps import run_search

        return run_search(*self._given, arguments, self._only_list)


SWEEPERS = {"sweep": SweepSweeper, "study": StudySweeper, "search": SearchSweeper}


def register() -> None:
    """Make the sweepers known to Hydra, which finds them by itself only when not editable."""
    for name, sweeper in SWEEPERS.items():
        Plugins.instance().register(sweeper)
        target = f"{sweeper.__module__}.{sweeper.__name__}"
        ConfigStore.instance().store(
            group="hydra/sweeper",
            name=name,
            node={"_target_": target, "only_list": False, "params": None},
            provider="isotrain",
        )
