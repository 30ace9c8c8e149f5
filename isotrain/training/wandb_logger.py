"""Weights & Biases: online with a key, offline without one, never in the way of a run."""

from __future__ import annotations

import netrc
import os
from pathlib import Path

from pytorch_lightning.loggers import WandbLogger


def has_key(host: str = "api.wandb.ai") -> bool:
    """Whether an API key is configured, in the environment or in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def build_wandb_logger(
    project: str, group: str | None, save_dir: str | Path, name: str, job_type: str = "train"
) -> WandbLogger:
    """A logger whose run is online when a key is configured and offline otherwise.

    `WANDB_MODE` overrides that. When the service cannot be reached the run goes on offline.
    Machine metadata and code are not sent: both can hold secrets.
    """
    import wandb

    settings = wandb.Settings(
        x_disable_meta=True, save_code=False, disable_git=True, silent=True, init_timeout=30
    )
    options = {
        "project": project,
        "group": group,
        "name": name,
        "dir": str(save_dir),
        "job_type": job_type,
        "settings": settings,
    }
    mode = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
    try:
        run = wandb.init(mode=mode, **options)  # type: ignore[arg-type]
    except (wandb.errors.CommError, wandb.errors.UsageError) as error:
        print(f"W&B: {error}; this run is logged offline (wandb sync sends it later)")
        run = wandb.init(mode="offline", **options)  # type: ignore[arg-type]
    # One x-axis for all curves; Lightning defines it only for runs it opens itself.
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(experiment=run)
