"""Isolate runs that share a process: each starts from the same process state."""

import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def isolated() -> Iterator[None]:
    """Restore at the end what a run changes in its process.

    That is the environment, random states, options and threads of torch, its compiled code, process
    group and rank, warnings, logging levels, signal handlers and a run of W&B.
    """
    with ExitStack() as stack, warnings.catch_warnings():
        for restore in (*_of_python(), *_of_torch()):
            stack.callback(restore)
        stack.callback(_close, _wandb_run())  # first
        yield


def _of_python() -> Iterator[Callable[[], Any]]:
    yield partial(_set_environment, dict(os.environ))
    yield partial(random.setstate, random.getstate())
    yield partial(np.random.set_state, np.random.get_state())
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield partial(logger.setLevel, logger.level)
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            yield partial(signal.signal, number, signal.getsignal(number) or signal.SIG_DFL)


def _of_torch() -> Iterator[Callable[[], Any]]:
    yield partial(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_initialized():
        yield partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    yield partial(torch.set_num_threads, torch.get_num_threads())
    yield partial(torch.set_default_dtype, torch.get_default_dtype())
    yield partial(torch.set_grad_enabled, torch.is_grad_enabled())
    yield partial(
        torch.use_deterministic_algorithms,
        torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    for name in ("enabled", "benchmark", "deterministic"):
        yield partial(setattr, torch.backends.cudnn, name, getattr(torch.backends.cudnn, name))
    with suppress(RuntimeError):  # torch reads no precision that its older and newer options mix
        yield partial(setattr, torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
    with suppress(RuntimeError):  # also sets torch.backends.cuda.matmul.allow_tf32
        yield partial(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    yield partial(torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled())
    for device in ("cpu", "cuda"):
        yield partial(torch.set_autocast_enabled, device, torch.is_autocast_enabled(device))
        yield partial(torch.set_autocast_dtype, device, torch.get_autocast_dtype(device))
    yield partial(setattr, rank_zero_only, "rank", getattr(rank_zero_only, "rank", 0))


def _set_environment(before: dict[str, str]) -> None:
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ |= before


def _close(wandb_run: Any) -> None:
    """The process group, compiled code, and a W&B run other than this."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()  # else a later model would reach the limit of recompilations
    if (open_run := _wandb_run()) not in (None, wandb_run):
        open_run.finish()


def _wandb_run() -> Any:
    return getattr(sys.modules.get("wandb"), "run", None)
