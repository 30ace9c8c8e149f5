"""Switches in the environment."""

from __future__ import annotations

import os


def is_on(*names: str) -> bool:
    """Whether one of these variables of the environment says yes.

    >>> is_on("A_SWITCH_THAT_NOBODY_SET")
    False
    """
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)
