"""What speaks against an export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CannotExportError(ValueError):
    """A run, a target or a format that cannot be: rule, what was given, the fix."""


class RoundTripError(RuntimeError):
    """What was written does not give what the run gives; it is not kept."""


@contextmanager
def refusing(rule: str) -> Iterator[None]:
    """A CannotExportError with the rule for whatever the block raises.

    For blocks that read what may be damaged, or call parts of users: both may raise anything.
    """
    try:
        yield
    except CannotExportError:
        raise
    except Exception as error:
        raise CannotExportError(f"{rule} ({type(error).__name__}: {error})") from error
