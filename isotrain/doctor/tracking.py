"""How Weights & Biases would log a run with `logger=[wandb]`. No key is ever shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from isotrain.config.environment import has_wandb_key
from isotrain.doctor.line import Line


def tracking() -> Iterator[Line]:
    """The mode of W&B, and why."""
    if find_spec("wandb") is None:
        yield Line("W&B", "logger=[wandb]", "not installed", "pip install wandb, or leave it out")
        return
    key = has_wandb_key()
    asked = os.environ.get("WANDB_MODE")
    mode = asked or ("online" if key else "offline")
    why = "WANDB_MODE" if asked else "a key is configured" if key else "no key; wandb sync sends it"
    fix = ""
    if mode == "online" and not key:
        fix = "wandb login, or unset WANDB_MODE: such runs are logged offline"
    yield Line("W&B", "logger=[wandb]", f"{mode} ({why})", fix)
