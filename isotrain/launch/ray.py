"""Run a sweep as Ray tasks: if one dies, the others continue.

If a worker or node is lost, Ray restarts its task elsewhere, and the run resumes from its
checkpoint. A run that raises is not repeated. Runs have the folder, the environment and the import
path of the launching command, as joblib's workers do.
"""

import os
import re
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.console import install, say
from isotrain.launch.devices import VISIBLE
from isotrain.launch.nodes import NodeError, check_shared, marker_of
from isotrain.launch.workers import GRACE_S
from isotrain.runs.record import HOST, JOB
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import PlanError
from isotrain.studies.call import RunError

REACHED_S = 10.0  # time for an address to answer; Ray itself tries for many minutes


class Shared(NamedTuple):
    """State that all tasks of a launch receive from the launching command."""

    context: HydraContext
    task: TaskFunction
    state: Any  # of Hydra's singletons
    folder: str
    environment: dict[str, str]
    import_path: list[str]
    marker: Path | None  # a file of the launcher, which the nodes must see


class Tasks:
    """Tasks of Ray, one for each run.

    Args:
        init: arguments of `ray.init`.
        remote: arguments of `ray.remote`, such as `num_cpus` and `max_retries`.
        context: Hydra's.
        task: the app's function.
        config: Hydra's configuration of the call.
    """

    def __init__(
        self,
        init: DictConfig,
        remote: DictConfig,
        context: HydraContext,
        task: TaskFunction,
        config: DictConfig,
    ) -> None:
        self._init, self._context, self._task, self._config = init, context, task, config
        self._remote: dict[str, Any] = OmegaConf.to_container(remote, resolve=True)  # type: ignore[assignment]

    def launch(
        self, job_overrides: Sequence[Sequence[str]], first: int, n_at_once: int | None
    ) -> list[JobReturn]:
        """The `JobReturn` of each run, in order.

        Ctrl-C and SIGTERM end the active runs, which write a checkpoint.

        Raises:
            PlanError: Ray cannot be reached.
        """
        setup_globals()
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        ray = _connected(OmegaConf.to_container(self._init, resolve=True))
        self._say_if_none_has_room()
        run = ray.remote(**{"num_cpus": 1, **self._remote})(_run)
        marker = marker_of(Path(str(self._config.hydra.sweep.dir)))
        caller_state = os.getcwd(), dict(os.environ), sys.path, marker
        shared = ray.put(Shared(self._context, self._task, Singleton.get_state(), *caller_state))
        queue = list(enumerate(job_overrides))[::-1]
        running: dict[Any, tuple[int, str]] = {}
        returns: dict[int, JobReturn] = {}
        try:
            while queue or running:
                while queue and len(running) < (n_at_once or len(job_overrides)):
                    k, overrides = queue.pop()
                    config = self._config_of(overrides, first + k)
                    name = str(config.hydra.job.name)
                    running[run.options(name=name).remote(shared, config)] = k, name
                for ready_task in ray.wait(list(running))[0]:
                    k, name = running.pop(ready_task)
                    returns[k] = self._end_of(ready_task, name)
        finally:
            for task in running:  # after a signal
                ray.cancel(task)
            ray.wait(list(running), num_returns=len(running), timeout=GRACE_S) if running else None
        return [returns[k] for k in range(len(job_overrides))]

    def _config_of(self, overrides: Sequence[str], number: int) -> DictConfig:
        config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(config):
            config.hydra.job.num = number
        return config

    def _end_of(self, done: Any, name: str) -> JobReturn:
        """The result or failure of a run, after printing its output."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        job_return: JobReturn
        try:
            job_return, output = ray.get(done)
        except RayTaskError as error:  # outside of the run
            failure = RunError(type(error.cause).__name__, str(error.cause))
        except RayError as error:
            n = self._remote.get("max_retries", 3)
            failure = RunError(
                type(error).__name__,
                f"its worker died, and Ray gave up after {n} retries "
                "(hydra.launcher.ray.remote.max_retries); the same command goes on. Ray says: "
                + str(error).partition("\n")[0],
            )
        else:
            if output:
                say(output.rstrip())
            return job_return
        say(f"failed {name}: {redacted(str(failure))}")
        return JobReturn(status=JobStatus.FAILED, _return_value=failure)

    def _say_if_none_has_room(self) -> None:
        """Print a line if no node is large enough now: Ray would wait silently."""
        import ray

        resources = {
            "CPU": self._remote.get("num_cpus", 1),
            "GPU": self._remote.get("num_gpus"),
            **(self._remote.get("resources") or {}),
        }
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        if not any(all(node.get(k, 0) >= (n or 0) for k, n in resources.items()) for node in nodes):
            needs = ", ".join(f"{n:g} {k}" for k, n in resources.items() if n)
            say(f"no node of Ray has {needs} for a run; the runs wait for such a node")


def _connected(init: Any) -> Any:
    """The `ray` module, connected to a cluster; starts one if needed.

    Raises:
        PlanError: it is not installed, or cannot be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise PlanError(f"hydra/launcher=ray needs Ray ({error}): {install('ray')}") from error
    if ray.is_initialized():  # by an earlier launch of a search
        return ray
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if match := re.fullmatch(r"([\w.-]+):(\d+)", str(init.get("address"))):
            socket.create_connection((match[1], int(match[2])), REACHED_S).close()
        ray.init(**init)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        reason = redacted(str(error).partition("\n")[0])
        raise PlanError(
            f"Ray cannot be reached ({reason}); start it with `ray start --head`, or correct "
            "hydra.launcher.ray.init"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray's exits with 15
    return ray


def _run(shared: Shared, config: DictConfig) -> tuple[JobReturn, str]:
    """Execute a run in a Ray worker; its `JobReturn` and its output."""
    node, task = node_and_task()
    if not Path(shared.folder).is_dir():
        raise NodeError(
            f"node {node} has no folder {shared.folder}; give the command in a folder that all "
            "nodes share"
        )
    os.chdir(shared.folder)
    worker_env = {k: v for k, v in os.environ.items() if k.startswith("RAY_") or k == VISIBLE}
    launcher_env = {k: v for k, v in shared.environment.items() if k != VISIBLE}
    os.environ.clear()  # those of Slurm, in which a node of Ray may be, would make it a rank
    os.environ.update({**launcher_env, **worker_env, HOST: node, JOB: task})
    sys.path[:] = dict.fromkeys([*shared.import_path, *sys.path])
    if shared.marker is not None:
        check_shared(shared.marker)
    setup_globals()
    Singleton.set_state(shared.state)
    with open_dict(config):
        config.hydra.job.id = task
    HydraConfig.instance().set_config(config)
    with redirect_stdout(StringIO()) as stdout:
        job_return = run_job(
            hydra_context=shared.context,
            task_function=shared.task,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
    return job_return, stdout.getvalue()


def node_and_task() -> tuple[str, str]:
    """The node of this worker of Ray, by its name if it has one, and the id of its task."""
    import ray

    context = ray.get_runtime_context()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    node = next(node for node in nodes if node["NodeID"] == context.get_node_id())
    is_named = node["NodeName"] != node["NodeManagerAddress"]
    return node["NodeName"] if is_named else socket.gethostname(), str(context.get_task_id())
