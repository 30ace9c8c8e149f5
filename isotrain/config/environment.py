"""Switches and API keys in the environment."""

import netrc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

HUB_WAIT_S = 5.0  # to connect, and as long for an answer
HUB_OFF = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


def is_on(*names: str) -> bool:
    """Whether one of these environment variables is on."""
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)


@cache
def hub_error() -> str:
    """The reason why the hub does not answer; empty if it does. One request per process."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_WAIT_S)
    except Exception as error:  # of httpx or httpx2, by version; or the hub is switched off
        reason = str(error).partition("\n")[0] or type(error).__name__
        return f"{constants.ENDPOINT} does not answer ({reason})"
    return ""


@contextmanager
def hub_or_cache() -> Iterator[str]:
    """Switch the hub off for a block if it does not answer; yields the reason.

    Its libraries then read their caches at once. Otherwise they retry each file, for minutes.
    """
    from huggingface_hub import constants

    reason, was_offline = hub_error(), constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = bool(reason)
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = was_offline


def has_wandb_key(host: str = "api.wandb.ai") -> bool:
    """Whether a key of Weights & Biases is configured, in the environment or the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
