"""What speaks against an export."""

from __future__ import annotations


class CannotExportError(ValueError):
    """A run, a target or a format that cannot be: rule, what was given, the fix."""


class RoundTripError(RuntimeError):
    """What was written does not give what the run gives; it is not kept."""
