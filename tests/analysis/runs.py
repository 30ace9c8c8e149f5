"""Analyses that tests run in process."""

from __future__ import annotations

from isotrain.analysis.types import Outcome


def outcome_of(analysis, subject, weights=("as given",)):
    """All that the parts of an analysis find, as if of each of some weights."""
    records, arrays = [], {}
    for one in weights:
        for part in analysis.parts(subject):
            found = part.measure()
            records += [{"weights": one, **record} for record in found.records]
            arrays |= {f"{one}/{key}": array for key, array in found.arrays.items()}
    return Outcome(records, arrays)


def records_of(analysis, subject, weights="as given"):
    """The records alone."""
    return outcome_of(analysis, subject, (weights,)).records


def of(outcome, kind=None, **where):
    """The records of a kind that have some values."""
    where |= {} if kind is None else {"kind": kind}
    return [r for r in outcome.records if all(r.get(k) == v for k, v in where.items())]
