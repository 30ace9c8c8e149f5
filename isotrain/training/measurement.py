"""The metrics of a run applied to its clouds. N rows, D hidden."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from isotrain.geometry.cloud import shared
from isotrain.geometry.rows import sentence_of
from isotrain.geometry.scatter import label_classes
from isotrain.metrics.suite import flat, grouped_by, needs
from isotrain.training.watched_rows import Watched
from isotrain.types import RowMetric


class Measurement:
    """Values of every metric of one cloud, by `<metric>`, beside `n_rows`.

    Moments and spectrum of a cloud are computed once for all metrics. Rows with a NaN are left out
    and counted in `n_rows_not_finite`. Where a metric refuses a cloud (too few rows, one class)
    its value is absent, and the first time is told; without words, or without a reference, what
    needs them is absent.

    Args:
        metrics: functions `[N, D] -> scalar` (or a flat dict of them) by name; groups are words by
            token id, or sentences (see `isotrain.metrics.suite.grouped_by`).
    """

    def __init__(self, metrics: Mapping[str, RowMetric]):
        self.metrics = dict(metrics)
        self.needs = {name: needs(metric) for name, metric in metrics.items()}
        self._grouped_by = {
            name: grouped_by(metric)
            for name, metric in metrics.items()
            if self.needs[name] == "groups"
        }
        self._told: set[str] = set()

    @property
    def compares(self) -> bool:
        """Whether any metric asks for reference rows."""
        return "reference" in self.needs.values()

    def __call__(self, cloud: Watched, reference_ND: Tensor | None) -> dict[str, float]:
        """The values of one cloud; `reference` are the rows of the same ids to compare it with."""
        finite_N = torch.isfinite(cloud.x_ND).all(dim=1)
        n = int(finite_N.sum())
        values: dict[str, float] = {"n_rows": n}
        if n < len(finite_N):
            values["n_rows_not_finite"] = len(finite_N) - n
        if n < 2:
            return values  # no pair to measure; the row count says so
        x_ND = cloud.x_ND if n == len(finite_N) else cloud.x_ND[finite_N]
        known = {name: None if x is None else x[finite_N] for name, x in _known(cloud).items()}
        if reference_ND is not None and bool(torch.isfinite(reference_ND[finite_N]).all()):
            known["reference"] = reference_ND[finite_N]
        with shared(x_ND):
            for name, metric in self.metrics.items():
                need = self.needs[name]
                given = {}
                if need != "rows":
                    if (found := known.get(self._grouped_by.get(name, need))) is None:
                        continue
                    given = {need: found}
                try:
                    of_cloud = metric(x_ND, **given)
                except (ValueError, RuntimeError) as error:
                    self._tell(name, cloud.name, error)
                    continue
                values |= {key: float(value) for key, value in flat(name, of_cloud).items()}
        return values

    def _tell(self, name: str, place: str, error: Exception) -> None:
        if name not in self._told:
            rank_zero_warn(f"isotropy/{name} is left out where it is not defined: {place}: {error}")
        self._told.add(name)


def _known(cloud: Watched) -> dict[str, Tensor | None]:
    """What metrics may ask for beside the rows."""
    sentences = None if cloud.token_N is None else sentence_of(cloud.id_N)
    return {
        "labels": label_classes(cloud.label_N),
        "words": cloud.token_N,
        "sentences": sentences,
    }
