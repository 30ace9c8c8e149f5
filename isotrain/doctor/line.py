"""What `isotrain doctor` says: one line for each thing it looked at."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """One thing, how it was found, and in one line what to do where something is amiss."""

    part: str  # packages, data, encoders, ...
    name: str
    found: str
    fix: str = ""  # empty = nothing to do
    stops: bool = False  # whether the demo cannot run so

    @property
    def mark(self) -> str:
        """`ok`; `!` where something can be done; `x` where it must.

        >>> Line("data", "rte", "missing", "get it").mark
        '!'
        """
        return "x" if self.stops else "!" if self.fix else "ok"
