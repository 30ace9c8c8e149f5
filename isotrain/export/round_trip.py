"""Whether what was written gives what the run gives."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from isotrain.export.errors import RoundTripError

LIMIT = 1e-6  # of the largest number, or of 1

Pair = tuple[Tensor, Tensor]


class Differences(NamedTuple):
    """Largest differences between a run and what is loaded from its export."""

    single: float  # both computed in float32, as they are used
    double: float  # both in float64: of the weights, without the rounding of sums
    limit: float  # that `double` stays below
    n_rows: int

    def __str__(self) -> str:
        return (
            f"largest difference {self.double:.1g} (limit {self.limit:.1g}; in float32, with the "
            f"rounding of sums, {self.single:.1g})"
        )


def differences(single: Pair, double: Pair) -> Differences:
    """The largest difference in float32, and in float64, which is judged.

    Numbers up to 1 in size may differ by 1e-6, larger ones by 1e-6 of the largest. Two ways to sum
    768 products in float32 may differ by more, so weights are judged by float64.

    Raises:
        RoundTripError: shapes differ, or the numbers by more.
    """
    (run_32, own_32), (run_64, own_64) = single, double
    if run_64.shape != own_64.shape:
        raise RoundTripError(
            f"what was written gives {tuple(own_64.shape)}, the run {tuple(run_64.shape)}: its "
            "tokenizer does not give the token ids of the run"
        )
    limit = LIMIT * max(1.0, float(run_64.abs().max()))
    found = Differences(
        float((run_32 - own_32).abs().max()),
        float((run_64 - own_64).abs().max()),
        limit,
        len(run_64),
    )
    if not found.double <= limit:
        raise RoundTripError(f"what was written differs from the run: {found}")
    return found
