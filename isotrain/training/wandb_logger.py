"""Weights & Biases: online with a key, offline without one, never in the way of a run."""

from __future__ import annotations

import netrc
import os
from pathlib import Path
from uuid import uuid4

from pytorch_lightning.loggers import WandbLogger

from isotrain.config.redaction import redacted


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

    `WANDB_MODE` overrides that. When the service cannot be reached, or refuses, the run goes on
    offline. Machine metadata and code are not sent: both can hold secrets.

    The run's id is kept in `<save_dir>/wandb_id`, so that a resumed run continues its curves:
    online from the row the service has got to (`n_rows_held`), offline in a new folder that has
    all rows, to be synced in place of the older ones.
    """
    import wandb

    id_file = Path(save_dir) / "wandb_id"
    run_id = id_file.read_text("utf-8") if id_file.is_file() else uuid4().hex[:8]
    id_file.write_text(run_id, "utf-8")

    settings = wandb.Settings(
        x_disable_meta=True, save_code=False, disable_git=True, silent=True, init_timeout=30
    )
    options = {
        "project": project,
        "id": run_id,
        "resume": "allow",
        "group": group,
        "name": name,
        "dir": str(save_dir),
        "job_type": job_type,
        "settings": settings,
    }
    mode = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
    try:
        run = wandb.init(mode=mode, **options)  # type: ignore[arg-type]
    except Exception as error:  # no network, no quota, a bad key, a time-out
        print(
            f"W&B: {redacted(str(error))}; this run is logged offline (wandb sync sends it later)"
        )
        run = wandb.init(mode="offline", **options)  # type: ignore[arg-type]
    # One x-axis for all curves; Lightning defines it only for runs it opens itself.
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    logger = WandbLogger(experiment=run)
    logger.n_rows_held = 0 if run.offline else run.step  # type: ignore[attr-defined]
    return logger
