"""How benchmarks measure: contenders in turns, medians, ratios with quartiles, peak memory."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

import torch

Times = dict[str, list[float]]  # seconds of each contender, by round


class Spread(NamedTuple):
    """Median and quartiles."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3g} ({self.low:.3g} to {self.high:.3g})"


def seconds_of(function: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def interleaved(
    rounds: int,
    contenders: Mapping[str, Callable[[], object]],
    seconds: Callable[[Callable[[], object]], float] = seconds_of,
) -> Times:
    """Seconds of every contender, one call of each in every round; the first round warms up.

    Every other round runs backwards, so that no contender always follows the same one. `seconds`
    measures a call; one that returns its own time is `lambda contender: contender()`.
    """
    times: Times = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name in list(contenders)[:: 1 if number % 2 else -1]:
            took = seconds(contenders[name])
            if number:
                times[name].append(took)
    return times


def spread(values: list[float]) -> Spread:
    """Median and quartiles of two values or more."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def ratio(times: Times, over: str, under: str) -> Spread:
    """The seconds of one contender over those of another, round by round."""
    return spread([a / b for a, b in zip(times[over], times[under], strict=True)])


def ms(times: Times, name: str) -> float:
    """Median milliseconds of a contender."""
    return 1e3 * median(times[name])


def setting(what: str, rounds: int) -> None:
    """Print what was measured under which conditions."""
    threads = torch.get_num_threads()
    print(f"{what}, {rounds} rounds, {threads} threads, torch {torch.__version__}\n")


def head(*names: str) -> None:
    """Print the head of a table."""
    row(*names)
    row(*["---"] * len(names))


def row(*cells: object) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def allocated_mb() -> float:
    """What this process has allocated: without pages of files, which the system may drop."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def peak_mb(function: Callable[[], object]) -> tuple[float, float]:
    """What the process had allocated before a call, and the most during it."""
    before = peak = allocated_mb()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, allocated_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = function()  # held until it is measured
    at_end = allocated_mb()
    done.set()
    watcher.join()
    del result
    return before, max(peak, at_end)
