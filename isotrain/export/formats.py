"""Export formats, the check that an export reproduces the run, and export errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # early rejections need no torch
    from torch import Tensor

LIMIT = 1e-6  # in float64, relative to the largest number or 1
ROUNDED = 1e-5  # in float32, likewise; or
TIMES = 10  # times the run's own difference between float32 and float64


class Differences(NamedTuple):
    """Largest differences between a run and its reloaded export."""

    single: float  # both computed in float32, as in use
    single_limit: float  # upper bound of `single`
    double: float  # both in float64: from the weights, without rounding of sums
    limit: float  # upper bound of `double`
    n_rows: int

    def __str__(self) -> str:
        return (
            f"largest difference {self.double:.1g} (limit {self.limit:.1g}); in float32, with the "
            f"rounding of sums, {self.single:.1g} (limit {self.single_limit:.1g})"
        )


def differences(single: tuple[Tensor, Tensor], double: tuple[Tensor, Tensor]) -> Differences:
    """Largest differences in float32 and in float64; both are checked.

    In float64 only the weights differ; the tolerance is 1e-6 of the largest number, or of 1. In
    float32 the order of sums differs too; the tolerance is 1e-5 of the largest number, or ten times
    the run's own difference between float32 and float64.

    Raises:
        RoundTripError: shapes differ, or numbers differ by more.
    """
    (run_32, own_32), (run_64, own_64) = single, double
    if run_64.shape != own_64.shape:
        raise RoundTripError(
            f"what was written gives {tuple(own_64.shape)}, the run {tuple(run_64.shape)}: its "
            "tokenizer does not give the token ids of the run"
        )
    scale = max(1.0, float(run_64.abs().max()))
    rounding = float((run_32 - run_64).abs().max())
    found = Differences(
        float((run_32 - own_32).abs().max()),
        max(ROUNDED * scale, TIMES * rounding),
        float((run_64 - own_64).abs().max()),
        LIMIT * scale,
        len(run_64),
    )
    if not (found.double <= found.limit and found.single <= found.single_limit):
        raise RoundTripError(f"what was written differs from the run: {found}")
    return found


class Format(NamedTuple):
    """A folder to write."""

    name: str  # transformers | sentence-transformers
    tag: str  # pipeline tag of the hub
    what: str  # one line, for the terminal and the card
    usage: Callable[[Path], str]  # markdown: runnable code, and notes
    write: Callable[[Path], None]
    check: Callable[[Path], Differences]  # loads the written folder


class CannotExportError(ValueError):
    """Run, target or format cannot be exported: the rule, what was given, the fix."""


class RoundTripError(RuntimeError):
    """The export does not reproduce the run, and is deleted."""


@contextmanager
def refusing(rule: str) -> Iterator[None]:
    """Convert any exception of the block into a CannotExportError with the rule.

    For blocks that read possibly damaged files or call user code: both may raise anything.
    """
    try:
        yield
    except CannotExportError:
        raise
    except Exception as error:
        raise CannotExportError(f"{rule} ({type(error).__name__}: {error})") from error
