"""How a command says what it could not do, in one form and without secrets; its exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from isotrain.config.redaction import redacted

FAILED, REFUSED = 1, 2  # exit codes; after a signal, 128 + its number


def tell(what: str, lines: Sequence[str]) -> None:
    """Write `isotrain: <what>` to stderr, and below it the lines."""
    print(f"isotrain: {what}", *redacted(list(lines)), sep="\n  ", file=sys.stderr)


def refused(mistakes: str | Sequence[str]) -> int:
    """Exit code 2, once the mistakes of a command that cannot run are told: a text, or lines."""
    tell("this cannot run", mistakes.splitlines() if isinstance(mistakes, str) else mistakes)
    return REFUSED


def install(extra: str) -> str:
    """What brings an extra of isotrain, which is on no package index.

    >>> install("peft")
    "pip install -e '.[peft]' in the clone of isotrain"
    """
    return f"pip install -e '.[{extra}]' in the clone of isotrain"
