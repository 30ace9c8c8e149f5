"""A table of how far all is: printed once, or drawn anew on a terminal until all has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Group
from rich.live import Live

from isotrain.console import is_watched, say
from isotrain.study.history import listed

REDRAW_S = 3.0  # between two looks of --watch
MOST_REASONS = 20  # of failures, told below the table


def show(look: Callable[[], tuple[Group, bool]], watch: bool) -> None:
    """Print what `look` gives to show; it gives, too, whether all has ended.

    With `watch` it is drawn anew until that; without a terminal it is printed once, which is told.
    """
    if watch and not is_watched():
        say("--watch redraws on a terminal, and this is none: the status once")
    drawn, has_ended = look()
    if watch and is_watched():
        with Live(drawn, transient=True) as live:
            while not has_ended:
                time.sleep(REDRAW_S)
                drawn, has_ended = look()
                live.update(drawn, refresh=True)
    for part in drawn.renderables:
        say(part)


def at_step(step: int | None, of_all: int | None, is_running: bool) -> str:
    """Where a run is; empty where there is nothing to tell.

    >>> at_step(3, 9, True), at_step(3, None, False), at_step(None, 9, True)
    ('step 3 of 9', 'step 3', 'starting')
    """
    if step is None:
        return "starting" if is_running else ""
    return f"step {step} of {of_all}" if of_all else f"step {step}"


def numbers_at(places: Mapping[int, str]) -> str:
    """Numbers of runs or trials, each with its place; before them those without one, in ranges."""
    plain = [number for number, place in places.items() if not place]
    at = [f"{number} ({place})" for number, place in places.items() if place]
    return ", ".join([listed(plain), *at] if plain else at)


def first_of(reasons: Sequence[str]) -> list[str]:
    """The first `MOST_REASONS`, and how many more there are."""
    more = len(reasons) - MOST_REASONS
    return [*reasons[:MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]
