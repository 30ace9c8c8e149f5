"""What an export writes, whether it gives what the run gives, and what speaks against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # what is refused early needs no torch
    from torch import Tensor

LIMIT = 1e-6  # in float64: of the largest number, or of 1
ROUNDED = 1e-5  # in float32, of the same; or
TIMES = 10  # times what the run itself differs between float32 and float64


class Differences(NamedTuple):
    """Largest differences between a run and what is loaded from its export."""

    single: float  # both computed in float32, as they are used
    single_limit: float  # that `single` stays below
    double: float  # both in float64: of the weights, without the rounding of sums
    limit: float  # that `double` stays below
    n_rows: int

    def __str__(self) -> str:
        return (
            f"largest difference {self.double:.1g} (limit {self.limit:.1g}); in float32, with the "
            f"rounding of sums, {self.single:.1g} (limit {self.single_limit:.1g})"
        )


def differences(single: tuple[Tensor, Tensor], double: tuple[Tensor, Tensor]) -> Differences:
    """The largest difference in float32 and in float64; both are judged.

    In float64 only weights differ: numbers up to 1 in size may by 1e-6, larger ones by 1e-6 of the
    largest. In float32 two ways to sum differ too: by 1e-5 of the largest, or by ten times as much
    as the run itself differs between float32 and float64.

    Raises:
        RoundTripError: shapes differ, or the numbers by more.
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
    """A folder that is going to be written."""

    name: str  # transformers | sentence-transformers
    tag: str  # pipeline tag of the hub
    what: str  # one line, for the terminal and the card
    usage: Callable[[Path], str]  # markdown: code that runs as it is, and notes
    write: Callable[[Path], None]
    check: Callable[[Path], Differences]  # loads what was written


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
