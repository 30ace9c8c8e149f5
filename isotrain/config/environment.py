"""Switches and keys in the environment."""

import netrc
import os

HUB_OFF = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


def is_on(*names: str) -> bool:
    """Whether one of these environment variables is on."""
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


def has_wandb_key(host: str = "api.wandb.ai") -> bool:
    """Whether a key of Weights & Biases is configured, in the environment or the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
