"""The launcher of isotrain for Ray: `hydra/launcher=ray`.

It has the keys of Hydra's plug-in of this name, and takes its place: that one needs a cloudpickle
older than joblib's, and ends a whole sweep with the first task that Ray gives up. Nothing of Ray is
imported before it launches: Hydra lists its plug-ins at every command.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class RayLauncher(Launcher):
    """Runs each job as a task of Ray, and waits for all of them.

    Args:
        ray: `init`, arguments of `ray.init`, and `remote`, those of `ray.remote`.
        n_jobs: runs at a time; null = as many as the cluster has room for.
    """

    def __init__(self, ray: DictConfig, n_jobs: int | None = None) -> None:
        self._keys, self._n_jobs = ray, n_jobs

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what the workers need."""
        self._given = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """How each run ended."""
        from isotrain.launch.ray import Tasks

        tasks = Tasks(self._keys.init, self._keys.remote, *self._given)
        return tasks.launch(job_overrides, initial_job_idx, self._n_jobs)


@dataclass
class RayKeys:
    """The keys `hydra.launcher.ray`."""

    init: dict[str, Any] = field(default_factory=lambda: {"address": None, "log_to_driver": False})
    remote: dict[str, Any] = field(default_factory=lambda: {"num_cpus": 1, "max_retries": 3})


@dataclass
class LauncherKeys:
    """The keys `hydra.launcher`."""

    _target_: str = f"{RayLauncher.__module__}.{RayLauncher.__name__}"
    n_jobs: int | None = None
    ray: RayKeys = field(default_factory=RayKeys)


def register() -> None:
    """Make the launcher known to Hydra, in place of the plug-in's where that is installed."""
    Plugins.instance().register(RayLauncher)
    ConfigStore.instance().store(
        group="hydra/launcher", name="ray", node=LauncherKeys, provider="isotrain"
    )
