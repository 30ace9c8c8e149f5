"""The launcher of isotrain for Slurm: `hydra/launcher=submitit_slurm`.

It has the keys of Hydra's plug-in of this name, and takes its place. Nothing of submitit is
imported before it launches: Hydra lists its plug-ins at every command.
"""

from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

GROUP, NAME = "hydra/launcher", "submitit_slurm"
MAX_NUM_TIMEOUT = 20  # the plug-in's 0 fails a run at its first time limit; ours resume


class SlurmLauncher(Launcher):
    """Submits runs to Slurm as one array, and waits for all of them.

    Args:
        params: keys of the plug-in, such as `partition` and `timeout_min`.
    """

    def __init__(self, **params: Any) -> None:
        self._params = params

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what the nodes need."""
        self._given = {
            "hydra_context": hydra_context,
            "task_function": task_function,
            "config": config,
        }

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """How each run ended."""
        from isotrain.launch.slurm import SlurmArray

        array = SlurmArray(**self._params)
        array.setup(**self._given)
        return array.launch(job_overrides, initial_job_idx)


def register() -> None:
    """Make the launcher known to Hydra in place of the plug-in's, where that is installed."""
    Plugins.instance().register(SlurmLauncher)
    store = ConfigStore.instance()
    if f"{NAME}.yaml" not in store.list(GROUP):
        return
    own = {
        "_target_": f"{SlurmLauncher.__module__}.{SlurmLauncher.__name__}",
        "max_num_timeout": MAX_NUM_TIMEOUT,
    }
    node = OmegaConf.merge(store.load(f"{GROUP}/{NAME}.yaml").node, own)
    store.store(group=GROUP, name=NAME, node=node, provider="isotrain")
