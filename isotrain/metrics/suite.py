"""Compute many metrics of one cloud with shared moments and spectra. N embeddings, D width."""

import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.runs.keys import EXTRAS

HEADLINE = ("isoscore", "isoscore_corrected", "mean_cosine", "partition", "partition_null")


def suite(
    x: Tensor | Cloud,
    metrics: Iterable[str] | Mapping[str, Callable[..., Any]] = HEADLINE,
    *,
    refused: Literal["raise", "skip"] = "raise",
    labels: Tensor | None = None,
    groups: Tensor | None = None,
    reference: Tensor | None = None,
    positives: Tensor | None = None,
) -> dict[str, Tensor]:
    """Compute many metrics of `x [N, D]`; values by name, as 0-d float64 tensors.

    A metric that returns several values adds `<metric>_<value>` for each. Values share one graph
    if `x` requires gradients: sum them before `backward`.

    Args:
        x: embeddings; see each metric for what it needs.
        metrics: names of files in `isotrain.metrics`, or functions by name, such as
            `{"anisotropy": mean_cosine, "top_10": partial(explained_variance, n_directions=[10])}`.
        refused: metrics undefined for this cloud: `raise` names all in one error, `skip` omits
            them.
        labels: class number `[N]` of each embedding.
        groups: word or sentence number `[N]` of each embedding.
        reference: embeddings `[N, D]` of the same inputs (for isoscore_star any `[M, D]`).
        positives: embeddings `[N, D]`, each the positive partner of the one at its index.

    Raises:
        ValueError: an unknown name, a metric whose labels, groups, reference or positives are
            missing, two values of one name, or a metric that is not defined for `x`.

    >>> import torch
    >>> found = suite(torch.eye(3), ["isoscore", "explained_variance"])
    >>> sorted(found)
    ['explained_variance_1', 'explained_variance_2', 'explained_variance_3', 'isoscore']
    """
    functions = named(metrics)
    given = {"labels": labels, "groups": groups, "reference": reference, "positives": positives}
    extras: dict[str, dict[str, Any]] = {}
    for name, function in functions.items():
        need = needs(function)
        extras[name] = {} if need == "rows" else {need: given[need]}
        for value in extras[name].values():
            if value is None:
                raise ValueError(f"{name} needs {need}; pass {need}=, or leave {name} out")
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"{need} are a torch tensor, got {type(value)}; torch.as_tensor({need})"
                )
    cloud = x if isinstance(x, Cloud) else Cloud(x, min_rows=1)
    values: dict[str, Tensor] = {}
    refusals: list[str] = []
    for name, function in functions.items():
        try:
            found = flat(name, call_metric(function, cloud, **extras[name]))
        except ValueError as error:
            refusals.append(f"{name}: {error}")
            continue
        if twice := sorted(set(found) & set(values)):
            raise ValueError(f"two metrics give a value named {twice[0]}; rename one")
        values |= found
    if refusals and refused == "raise":
        raise ValueError("; ".join(refusals))
    return values


def call_metric(metric: Callable[..., Any], cloud: Cloud, **extras: Tensor) -> Any:
    """Call a metric with a cloud, or with its tensor if the first argument is not a `Cloud`."""
    first = next(iter(inspect.signature(metric).parameters.values()))
    # As text: a postponed annotation may use names imported only for type checking.
    takes_cloud = "Cloud" in re.findall(r"\w+", str(first.annotation))
    return metric(cloud if takes_cloud else cloud.x, **extras)


def find(name: str) -> Callable[..., Any]:
    """The metric of a name: the function of that name in its file in `isotrain.metrics`.

    Or, if the file has one, `<name>_estimate` (with its standard error) or `<name>_of_rows`
    (with the reference given as embeddings).
    """
    path = f"isotrain.metrics.{name}"
    known = name.isidentifier() and not name.startswith("_") and importlib.util.find_spec(path)
    module = importlib.import_module(path) if known else None
    own: Callable[..., Any] | None = getattr(module, name, None)
    if own is None or own is suite:
        legal = sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py"))
        near = get_close_matches(name.lower(), legal, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(legal)}"
        raise ValueError(f"{name!r} is no metric of isotrain.metrics; {hint}")
    for form in (f"{name}_estimate", f"{name}_of_rows"):
        own = getattr(module, form, own)
    return own


def named(
    metrics: Iterable[str | Callable[..., Any]] | Mapping[str, Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    """Functions by name, from names and functions, or from a mapping."""
    if isinstance(metrics, str):
        raise ValueError(f"metrics are a list of names, got {metrics!r}; pass [{metrics!r}]")
    if isinstance(metrics, Mapping):
        return dict(metrics)
    return dict((m, find(m)) if isinstance(m, str) else (m.__name__, m) for m in metrics)


def needs(function: Callable[..., Any]) -> str:
    """Which of labels, groups, reference or positives a metric takes; `rows` = none."""
    parameters = inspect.signature(function).parameters
    return next((name for name in EXTRAS if name in parameters), "rows")


def grouped_by(function: Callable[..., Any]) -> str:
    """The groups that a metric takes: `sentences` if so annotated, else `words` (token ids).

    `groups: Annotated[Tensor, "sentences"]` in a signature asks for sentences.
    """
    annotation = inspect.signature(function).parameters["groups"].annotation
    return "sentences" if "sentences" in str(annotation) else "words"


def flat(name: str, found: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values of one metric by full name."""
    if isinstance(found, Mapping):
        return {f"{name}_{part}": value for part, value in found.items()}
    return {name: found}
