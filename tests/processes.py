"""Two gloo processes for a test: a function is run on every rank and its results come back."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing


def on_ranks(work: Callable[..., Any], n: int, folder: Path, *arguments: Any) -> list[Any]:
    """`work(rank, *arguments)` of each rank; `work` must be a function of a module."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_one, (work, n, port, str(folder), arguments), nprocs=n)
    return [torch.load(folder / f"rank{r}.pt", weights_only=False) for r in range(n)]


def _one(rank: int, work: Any, n: int, port: int, folder: str, arguments: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=n)
    try:
        torch.save(work(rank, *arguments), Path(folder) / f"rank{rank}.pt")
    finally:
        distributed.destroy_process_group()
