"""Compute many metrics of one cloud with shared moments and spectra. N embeddings, D width."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.runs.keys import EXTRAS

HEADLINE = ("isoscore", "isoscore_corrected", "mean_cosine", "partition", "partition_null")


def suite(
    x: Tensor | Cloud,
    metrics: Iterable[str] | Mapping[str, Callable[..., Any]] = HEADLINE,
    *,
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
        labels: class number `[N]` of each embedding.
        groups: word or sentence number `[N]` of each embedding.
        reference: embeddings `[N, D]` of the same inputs (for isoscore_star any `[M, D]`).
        positives: embeddings `[N, D]`, each the positive partner of the one at its index.

    Raises:
        ValueError: an unknown name, or a metric that is not defined for `x`.

    >>> import torch
    >>> sorted(suite(torch.eye(3), ["isoscore", "explained_variance"]))
    ['explained_variance_1', 'explained_variance_2', 'explained_variance_3', 'isoscore']
    """
    cloud = Cloud.of(x, min_rows=1)
    inputs = {"labels": labels, "groups": groups, "reference": reference, "positives": positives}
    values: dict[str, Tensor] = {}
    for name, function in functions_by_name(metrics).items():
        need = needs(function)
        extras = {} if inputs.get(need) is None else {need: inputs[need]}
        try:
            values |= flat(name, call_metric(function, cloud, **extras))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return values


def call_metric(metric: Callable[..., Any], cloud: Cloud, **extras: Any) -> Any:
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
    legal = {file.stem for file in Path(__file__).parent.glob("[a-z]*.py")} - {"suite"}
    if name not in legal:
        near = get_close_matches(name.lower(), legal, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(legal))}"
        raise ValueError(f"{name!r} is no metric of isotrain.metrics; {hint}")
    module = importlib.import_module(f"isotrain.metrics.{name}")
    forms = (f"{name}_estimate", f"{name}_of_rows", name)
    return next(getattr(module, form) for form in forms if hasattr(module, form))


def functions_by_name(
    metrics: Iterable[str | Callable[..., Any]] | Mapping[str, Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    """Functions by name, from names and functions, or from a mapping."""
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


def flat(name: str, result: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values of one metric by full name."""
    if isinstance(result, Mapping):
        return {f"{name}_{part}": value for part, value in result.items()}
    return {name: result}
