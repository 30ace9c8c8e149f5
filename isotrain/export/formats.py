"""What an export writes, and how it is checked and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from isotrain.export.round_trip import Differences


class Format(NamedTuple):
    """A folder that is going to be written."""

    name: str  # transformers | sentence-transformers
    tag: str  # pipeline tag of the hub
    what: str  # one line, for the terminal and the card
    usage: Callable[[Path], str]  # markdown: code that runs as it is, and notes
    write: Callable[[Path], None]
    check: Callable[[Path], Differences]  # loads what was written
