"""Many metrics of one cloud from one pass over its rows. N rows, D dimensions."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from isotrain.geometry.cloud import Cloud, shared

HEADLINE = ("isoscore", "isoscore_corrected", "mean_cosine", "effective_rank", "partition")
NEEDS = ("labels", "groups", "reference", "positives")  # what a metric may take beside the rows


def suite(
    x: Tensor | Cloud,
    metrics: Iterable[str] | Mapping[str, Callable[..., Any]] = HEADLINE,
    *,
    labels: Tensor | None = None,
    groups: Tensor | None = None,
    reference: Tensor | None = None,
    positives: Tensor | None = None,
) -> dict[str, Tensor]:
    """Value of every asked metric of the rows of `x [N, D]`, by name, as 0-d float64 tensors.

    Rows are checked, centred and decomposed once for all metrics. A metric that returns several
    values adds `<metric>_<value>` for each. `metrics` are names of files in `isotrain.metrics`,
    taken with their defaults, or functions by name, such as
    `{"anisotropy": mean_cosine, "top_10": partial(explained_variance, n_directions=[10])}`.

    Args:
        x: rows; see each metric for what it needs.
        metrics: names, or functions by name.
        labels: class number `[N]` of each row.
        groups: word or sentence number `[N]` of each row.
        reference: rows `[N, D]` to compare with, row by row.
        positives: rows `[N, D]`, each the positive partner of the row in its place.

    Raises:
        ValueError: an unknown name, a metric whose labels, groups, reference or positives are
            not given, or what a metric itself refuses (its name comes first).

    >>> import torch
    >>> found = suite(torch.eye(3), ["isoscore", "explained_variance"])
    >>> sorted(found)
    ['explained_variance_1', 'explained_variance_2', 'explained_variance_3', 'isoscore']
    """
    functions = metrics if isinstance(metrics, Mapping) else {name: find(name) for name in metrics}
    given = {"labels": labels, "groups": groups, "reference": reference, "positives": positives}
    extras: dict[str, dict[str, Tensor]] = {}
    for name, function in functions.items():
        need = needs(function)
        if need == "rows":
            extras[name] = {}
            continue
        value = given[need]
        if value is None:
            raise ValueError(f"{name} needs {need}; pass {need}=, or leave {name} out")
        extras[name] = {need: value}
    if isinstance(x, Cloud):
        return _measured(x, functions, extras)
    with shared(x):
        return _measured(x, functions, extras)


def find(name: str) -> Callable[..., Any]:
    """The metric of a name: the function that its file in `isotrain.metrics` is named after.

    Where that one takes more than rows by a name of its own, its form for rows, `<name>_of_rows`.

    >>> find("isoscore").__name__
    'isoscore'
    """
    path = f"isotrain.metrics.{name}"
    known = name.isidentifier() and not name.startswith("_") and importlib.util.find_spec(path)
    module = importlib.import_module(path) if known else None
    own: Callable[..., Any] | None = getattr(module, name, None)
    if own is None or own is suite:
        raise ValueError(f"{name!r} is no metric; the files of isotrain.metrics name them")
    function: Callable[..., Any] = getattr(module, f"{name}_of_rows", own)
    return function


def needs(function: Callable[..., Any]) -> str:
    """`rows`, or which of labels, groups, reference and positives the metric takes besides.

    >>> needs(find("isoscore"))
    'rows'
    """
    parameters = inspect.signature(function).parameters
    return next((name for name in NEEDS if name in parameters), "rows")


def flat(name: str, found: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of one metric under their names.

    >>> flat("lid", {"value": 1.0})
    {'lid_value': 1.0}
    """
    if isinstance(found, Mapping):
        return {f"{name}_{part}": value for part, value in found.items()}
    return {name: found}


def _measured(
    x: Tensor | Cloud,
    functions: Mapping[str, Callable[..., Any]],
    extras: Mapping[str, dict[str, Tensor]],
) -> dict[str, Tensor]:
    values: dict[str, Tensor] = {}
    for name, function in functions.items():
        try:
            values |= flat(name, function(x, **extras[name]))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return values
