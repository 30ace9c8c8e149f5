"""How each arm of a study is drawn: the same in every figure, apart for many arms too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from isotrain.pages.panels import COLOURS

MARKERS = {  # of matplotlib, as a path about the origin for the legend of a page
    "o": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    "s": "M-3 -3h6v6h-6z",
    "^": "M0 -3.6L3.6 3H-3.6z",
    "D": "M0 -4L4 0L0 4L-4 0z",
    "v": "M0 3.6L3.6 -3H-3.6z",
    "P": "M-1.2 -3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "X": "M-3.6 -2L-2 -3.6L0 -1.6L2 -3.6L3.6 -2L1.6 0L3.6 2L2 3.6L0 1.6L-2 3.6L-3.6 2L-1.6 0z",
}
DASHES = {"-": "", "--": "5 2", ":": "1.5 1.5", "-.": "5 1.5 1.5 1.5"}


class Look(NamedTuple):
    """Of one arm."""

    name: str
    number: int  # of the arm, in `arm-3`
    colour: str
    marker: str
    line: str

    @property
    def gid(self) -> str:
        """The name of its lines in a figure, by which a page makes them stand out."""
        return f"arm-{self.number}"

    @property
    def path(self) -> str:
        """Its marker for a legend."""
        return MARKERS[self.marker]

    @property
    def dash(self) -> str:
        """Its line for a legend."""
        return DASHES[self.line]


def arm_looks(names: Sequence[str], baseline: str) -> dict[str, Look]:
    """A look for each arm: the baseline grey and dashed, the others in colours with markers.

    No two of up to 36 arms share both colour and marker.

    >>> looks = arm_looks(["none", "project"], "none")
    >>> looks["none"].colour, looks["none"].line, looks["project"].marker
    ('#444444', '--', 's')
    """
    colours, markers, lines = COLOURS[:-1], list(MARKERS)[1:], list(DASHES)
    looks = {baseline: Look(baseline, 0, COLOURS[-1], "o", "--")}
    for k, name in enumerate(name for name in names if name != baseline):
        lap, place = divmod(k, len(colours))
        marker = markers[(place + lap) % len(markers)]
        looks[name] = Look(name, k + 1, colours[place], marker, lines[lap % len(lines)])
    return looks
