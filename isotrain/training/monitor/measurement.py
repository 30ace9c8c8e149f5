"""Metrics of one cloud, and effect of a layer on it. N embeddings, D width, M queued."""

import warnings
from collections.abc import Mapping
from inspect import signature

import torch
from torch import Tensor

from isotrain.config.parts import raised_at
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import class_scatter, label_classes
from isotrain.geometry.rows import finite_rows, index_of, sentence_of
from isotrain.geometry.spectra import energy_kept, rms_distance
from isotrain.metrics.suite import call_metric, flat, grouped_by, needs
from isotrain.training.failures import MemoryLimitError, first_line, is_out_of_memory
from isotrain.training.monitor.sampling import SampledCloud
from isotrain.types import RowMetric


class Measurement:
    """Values of every metric of one cloud, by `<metric>`, and `n_rows`.

    Embeddings with a NaN are left out and counted in `n_rows_not_finite`. If a metric is undefined
    for a cloud (too few embeddings, one class), or fails, its value is absent, with one warning per
    metric.
    A metric that needs words or a reference is absent if there are none.

    Args:
        metrics: functions `[N, D] -> scalar` (or a flat dict of them) by name; groups are words by
            token id, or sentences (see `isotrain.metrics.suite.grouped_by`).
    """

    def __init__(self, metrics: Mapping[str, RowMetric]):
        self.metrics = dict(metrics)
        self.needs = {name: needs(metric) for name, metric in metrics.items()}
        self._warned_of: set[tuple[str, type[Exception]]] = set()

    @property
    def compares(self) -> bool:
        """Whether any metric needs reference embeddings."""
        return "reference" in self.needs.values()

    def __call__(self, cloud: SampledCloud, reference_ND: Tensor | None) -> dict[str, float]:
        """The values of one cloud; `reference` has the embeddings of the same ids."""
        finite_N = cloud.finite_N
        n, n_lost = int(finite_N.sum()), int((~finite_N).sum())
        values: dict[str, float] = {"n_rows": n}
        if n_lost:
            values["n_rows_not_finite"] = n_lost
        if n < 2:
            return values  # no pair to measure; the count shows it
        sources = {"labels": label_classes(cloud.label_N), "reference": reference_ND}
        sources["examples"] = index_of(cloud.id_N)
        if cloud.token_N is not None:
            sources |= {"words": cloud.token_N, "sentences": sentence_of(cloud.id_N)}
        inputs = {name: x[finite_N] for name, x in sources.items() if x is not None}
        if "reference" in inputs and not torch.isfinite(inputs["reference"]).all():
            del inputs["reference"]
        for name, metric in self.metrics.items():
            need = self.needs[name]
            source = grouped_by(metric) if need == "groups" else need
            if need != "rows" and source not in inputs:
                continue
            extras = {} if need == "rows" else {need: inputs[source]}
            if "examples" in signature(metric).parameters:
                extras["examples"] = inputs["examples"]
            try:
                value = call_metric(metric, cloud.finite, **extras)
                values |= {key: float(x) for key, x in flat(name, value).items()}
            except Exception as error:  # a user's metric may raise anything
                if is_out_of_memory(error):  # not undefined: a gap would look like a rule
                    raise MemoryLimitError(
                        f"metric.{name} is out of memory ({first_line(error)}); free memory and "
                        "give the same command again, or lower max_rows"
                    ) from error
                self._warn(name, cloud.name, error)
        return values

    def _warn(self, name: str, where: str, error: Exception) -> None:
        """Warn once per metric and kind: a ValueError says that it is undefined."""
        kind, text = type(error), f"isotropy/{name} is left out where it is not defined: {where}"
        if not isinstance(error, ValueError):
            text = f"isotropy/{name} failed and is left out there: {where}: {kind.__name__}"
        if (name, kind) not in self._warned_of:
            where_raised = "" if kind is ValueError else raised_at(error)
            warnings.warn(f"{text}: {error}{where_raised}", stacklevel=2)
        self._warned_of.add((name, kind))


def value_names(
    metrics: Mapping[str, RowMetric], max_rows: int, width: int
) -> dict[str, list[str]]:
    """Names of each metric's values, determined on a random cloud of the run's size.

    Raises:
        ValueError: a metric is undefined for every cloud of the run, or does not return 0-d
            tensors.
    """
    x_ND = torch.randn(min(max_rows, 4096), width, generator=torch.Generator().manual_seed(0))
    cloud, number_N = Cloud(x_ND), torch.arange(len(x_ND))
    extras = {"labels": number_N % 2, "groups": number_N % 2, "reference": x_ND.flip(1)}
    names = {}
    for name, metric in metrics.items():
        try:
            arguments = {need: extras[need] for need in [needs(metric)] if need != "rows"}
            values = flat(name, call_metric(metric, cloud, **arguments))
        except Exception as error:  # a user's metric may raise anything
            is_undefined = isinstance(error, ValueError)
            problem = str(error) if is_undefined else f"{error!r}{raised_at(error)}"
            raise ValueError(f"metric.{name}, tried on {len(x_ND)} rows: {problem}") from error
        for key, value in values.items():
            if not isinstance(value, Tensor) or value.ndim:
                raise ValueError(
                    f"metric.{name} must give 0-d tensors, or a flat dict of them; {key} is "
                    f"{type(value).__name__} {list(getattr(value, 'shape', []))}"
                )
        names[name] = list(values)
    return names


def site_measures(
    before_ND: Tensor, after_ND: Tensor, labels_N: Tensor | None, queue_MD: Tensor | None
) -> dict[str, Tensor]:
    """The effect of an isotropy layer on embeddings `[N, D]`, and the drift of its queue `[M, D]`.

    - `energy_kept`: scatter about the mean, after over before.
    - `label_scatter_removed`, with labels (scores are cut into five classes): 1 − s after / s
      before, s = tr S_B/tr S_T the share of the scatter that is between classes. 1 = the class
      means are equal, 0 = as separate as before, below 0 = more separate.
    - `queue_gap`, with a queue: distance of the queue's mean from that of the embeddings, over
      their rms distance from it; 0 = the statistics fit.
    - `queue_spread`: the queue's rms distance from its mean over that of the embeddings; 1 = fit.

    Undefined values are absent.

    >>> x = torch.tensor([[2.0, 0.0], [-2.0, 0.0]])
    >>> found = site_measures(x, x / 2, torch.tensor([0, 1]), x + 1.0)
    >>> {name: round(value.item(), 3) for name, value in found.items()}
    {'energy_kept': 0.25, 'label_scatter_removed': 0.0, 'queue_gap': 0.707, 'queue_spread': 1.0}
    """
    finite_N = torch.isfinite(before_ND).all(dim=1) & torch.isfinite(after_ND).all(dim=1)
    if labels_N is not None:
        finite_N &= torch.isfinite(labels_N)
    before_ND, after_ND = before_ND[finite_N].double(), after_ND[finite_N].double()
    rms = rms_distance(before_ND) if len(before_ND) else torch.tensor(0.0)
    if not bool(rms > 0):
        return {}
    measures = {"energy_kept": energy_kept(before_ND, after_ND)}
    if labels_N is not None:
        class_N = label_classes(labels_N[finite_N])
        scatters = [class_scatter(x_ND, class_N) for x_ND in (before_ND, after_ND)]
        totals = [scatter.between + scatter.within for scatter in scatters]
        if bool(scatters[0].between > 0) and bool(totals[1] > 0):
            before, after = (s.between / t for s, t in zip(scatters, totals, strict=True))
            measures["label_scatter_removed"] = 1.0 - after / before
    if queue_MD is not None and len(queue_MD := finite_rows(queue_MD.double())):
        measures["queue_gap"] = (queue_MD.mean(dim=0) - before_ND.mean(dim=0)).norm() / rms
        measures["queue_spread"] = rms_distance(queue_MD) / rms
    return measures
