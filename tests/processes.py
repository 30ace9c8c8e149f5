"""Processes for a test: a fresh interpreter, two that talk by gloo, or those of a run.

The results of ranks come back by files. They are forked from a server that has the imports done,
which would take seconds in each.
"""

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import torch
from torch import distributed, multiprocessing

from isotrain.runs.locks import take

ROOT = Path(__file__).parents[1]
PRELOADED = ["isotrain.build", "isotrain.runner", "isotrain.config.compose"]


def python(*arguments: Any, cwd: Path = ROOT, **environment: str) -> CompletedProcess[str]:
    """A Python process of one thread and without the hub, at its end, whatever its exit code.

    It has a W&B service of its own: one of these tests would close the process's run at their end.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    own = {**inherited, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment}
    line = [sys.executable, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd, env=own)


def printed_by(*arguments: Any, cwd: Path = ROOT, **environment: str) -> str:
    """What a Python process prints, which must end with exit code 0."""
    ended = python(*arguments, cwd=cwd, **environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def loaded_by(*codes: str) -> Any:
    """The top-level modules that a process has imported after some code; a set for each code."""
    tell = "\nprint(*(m for m in sys.modules if '.' not in m))\n"
    printed = printed_by("-c", "import sys\n" + "".join(code + tell for code in codes))
    found = [set(line.split()) for line in printed.splitlines()]
    return found if len(codes) > 1 else found[-1]


def on_ranks(work: Callable[..., Any], n: int, folder: Path, *arguments: Any) -> list[Any]:
    """`work(rank, *arguments)` of each rank; `work` must be a function of a module."""
    _start(_one, n, work, n, free_port(), str(folder), arguments)
    return [torch.load(folder / f"rank{r}.pt", weights_only=False) for r in range(n)]


def train_on_ranks(n: int, folder: Path, *overrides: str) -> tuple[Path, str]:
    """The folder of a run and what its `n` processes print: those that torchrun would start.

    The run starts in `folder`, which is made; one process has no launcher.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _start(_train, n, n, free_port(), str(folder), overrides)
    (result,) = folder.rglob("result.json")
    return result.parent, "".join((folder / f"rank{r}.txt").read_text() for r in range(n))


def server_with_imports() -> ForkServerContext:
    """The context of processes that are forked from one that has imported most of isotrain."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file while a block lasts."""
    lock = take(path)
    assert lock is not None
    try:
        yield
    finally:
        os.close(lock)


def _start(work: Callable[..., Any], n: int, *arguments: Any) -> None:
    server_with_imports()
    by_value = (work, pickle.dumps(arguments))  # tensors would go by file descriptors, 255 at most
    multiprocessing.start_processes(_started, by_value, nprocs=n, start_method="forkserver")


def _started(rank: int, work: Callable[..., Any], arguments: bytes) -> None:
    work(rank, *pickle.loads(arguments))


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _one(rank: int, work: Any, n: int, port: int, folder: str, arguments: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=n)
    try:
        torch.save(work(rank, *arguments), Path(folder) / f"rank{rank}.pt")
    finally:
        distributed.destroy_process_group()


def _train(rank: int, n: int, port: int, folder: str, overrides: tuple[str, ...]) -> None:
    from pytorch_lightning.utilities import rank_zero_only

    from isotrain.config.compose import compose_run
    from isotrain.runner import run

    rank_zero_only.rank = rank  # Lightning asks the environment when it is imported, before
    os.environ.pop("OMP_NUM_THREADS", None)  # `threads` must reach every rank by itself
    if n > 1:
        of_job = {"WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "GROUP_RANK": 0, "MASTER_PORT": port}
        of_job |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": port}
        of_rank = {"RANK": rank, "LOCAL_RANK": rank}
        os.environ |= {key: str(value) for key, value in (of_job | of_rank).items()}
    os.chdir(folder)
    with open(f"rank{rank}.txt", "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    run(compose_run([*overrides, f"trainer.devices={n}"]))
