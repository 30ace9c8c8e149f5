"""Figures with their baselines and errors, as cells of a record."""

from __future__ import annotations

import math

from isotrain.analysis.jackknife import Estimate


def figure(name: str, of: Estimate) -> dict[str, float | int]:
    """A figure and its standard error."""
    return {name: float(of.value), f"{name}_error": float(of.error)}


def less(name: str, of: Estimate, baseline: Estimate) -> dict[str, float | int]:
    """A figure, its baseline and their difference, with standard errors over sentences."""
    return {
        **figure(name, of),
        f"{name}_baseline": float(baseline.value),
        **figure(f"{name}_adjusted", of.less(baseline)),
    }


def in_quadrature(
    name: str, of: tuple[float, float], baseline: tuple[float, float]
) -> dict[str, float | int]:
    """The same of sets of n rows, none of which can lose one; errors are added in quadrature."""
    return {
        name: of[0],
        f"{name}_error": of[1],
        f"{name}_baseline": baseline[0],
        f"{name}_adjusted": of[0] - baseline[0],
        f"{name}_adjusted_error": math.hypot(of[1], baseline[1]),
    }
