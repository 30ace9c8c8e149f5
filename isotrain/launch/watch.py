"""A table of how far all is: printed once, or drawn anew on a terminal until all has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group
from rich.live import Live

from isotrain.pages.summary import say
from isotrain.progress import is_watched

REDRAW_S = 3.0  # between two looks of --watch


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
