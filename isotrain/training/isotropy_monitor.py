"""The isotropy of every layer, and before and after each isotropy layer, at each validation.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from isotrain.geometry.cloud import shared
from isotrain.geometry.reservoir import Reservoir
from isotrain.geometry.rows import index_of, row_ids
from isotrain.metrics.suite import flat, needs
from isotrain.training.site_measures import site_measures
from isotrain.types import Batch, ModelOutput, RowMetric

VIEWS = ("cls", "tokens")  # first token of each sequence; every non-pad token


class IsotropyMonitor(pl.Callback):
    """Logs `isotropy/<metric>/layer_LL/<view>` and `isotropy/<metric>/<site>/<before|after>`.

    Of each site also `val/<site>/<name>`: what `site_measures` finds.

    At most `max_rows` rows are kept per view and site, those whose (row, position) hashes
    lowest: the same ones at every validation and for any batch size. Memory is
    `max_rows`·D·4 bytes × (2·(L+1) + 2·sites), whatever the size of the data, and a float64 copy
    of one cloud while it is measured; its moments and spectrum are computed once for all metrics.
    Each metric is logged beside `n_rows`, the rows it was measured on; rows with a NaN are left
    out and counted in `n_rows_not_finite`. Where a metric refuses a cloud (too few rows, one
    class) its value is absent, and the first time is told. With several processes the rows are
    those that one process would keep.

    Args:
        metrics: functions `[N, D] -> scalar` (or a flat dict of them) by name; one with an
            argument `labels` gets the class of the example that each row comes from.
        max_rows: row budget of each cloud.
        headline: metric shown in the progress bar, for the last layer's tokens; None = the first.
    """

    def __init__(
        self, metrics: Mapping[str, RowMetric], max_rows: int, headline: str | None
    ) -> None:
        super().__init__()
        headline = headline or next(iter(metrics))
        if headline not in metrics:
            raise ValueError(
                f"monitor.headline must be one of the metrics {', '.join(metrics)}, "
                f"got {headline!r}"
            )
        self.metrics, self.max_rows, self.headline = dict(metrics), max_rows, headline
        self.of_labels = {name for name, metric in metrics.items() if needs(metric) == "labels"}
        self._reservoirs: dict[str, Reservoir] = {}
        self._owned: dict[str, bool] = {}  # whether each row of a site is an example of its own
        self._scores = False  # whether labels are scores, not classes
        self._told: set[str] = set()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start empty."""
        self._reservoirs = {}

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Offer the rows of a batch of dev to the reservoirs."""
        if dataloader_idx:  # training rows that are held out
            return
        output: ModelOutput = outputs["output"]
        ids_AT = row_ids(batch.index, batch.n_sequences, batch.input_ids.shape[1])
        flat_states = [hidden.flatten(0, 1) for hidden in output.hidden_states]  # [A·T, D]
        places = {
            "cls": torch.arange(len(ids_AT), device=ids_AT.device) * ids_AT.shape[1],
            "tokens": batch.attention_mask.flatten().nonzero().flatten(),
        }
        flat_states += self._labels(ids_AT.flatten(), batch)
        for view in VIEWS:
            ids_N = ids_AT.flatten()[places[view]]
            self._reservoir(view).add(ids_N, flat_states, places[view])
        for site, rows in output.site_rows.items():
            self._owned[site] = len(rows.ids) == len(batch.labels)
            self._scores = batch.labels.is_floating_point()
            clouds = [rows.before, rows.after, rows.labels[:, None]]
            self._reservoir(site + "_site").add(rows.ids, clouds)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the kept rows and log every value."""
        values: dict[str, Tensor] = {}
        for name, reservoir in self._reservoirs.items():
            if trainer.world_size > 1:
                reservoir.exchange()
            clouds = reservoir.clouds()
            site = name.removesuffix("_site")
            labels_N = clouds.pop()[:, 0] if self.of_labels or site != name else None
            if site != name:
                values |= self._site(pl_module, site, clouds, labels_N)
            for number, rows_ND in enumerate(clouds):
                if name in VIEWS:
                    place = f"layer_{number:02d}/{name}"
                else:
                    place = f"{site}/{('before', 'after')[number]}"
                values |= self._measure(rows_ND, labels_N, place)
        self._reservoirs = {}
        values = {key: value.to(pl_module.device) for key, value in values.items()}
        pl_module.log_dict(values, on_step=False, on_epoch=True, sync_dist=True)
        of_tokens = {k: v for k, v in values.items() if k.endswith("/tokens") and "/layer_" in k}
        for start in (f"isotropy/{self.headline}/", f"isotropy/{self.headline}_"):  # or its parts
            shown = [value for key, value in of_tokens.items() if key.startswith(start)]
            if shown:
                pl_module.log(self.headline, shown[-1], prog_bar=True, logger=False, sync_dist=True)
                break

    def _reservoir(self, name: str) -> Reservoir:
        if name not in self._reservoirs:
            self._reservoirs[name] = Reservoir(self.max_rows)
        return self._reservoirs[name]

    def _site(
        self, module: Any, site: str, clouds: list[Tensor], labels_N: Tensor | None
    ) -> dict[str, Tensor]:
        """What the layer of a site did, and how its queue compares."""
        layer = module.model.transforms[site]
        queue_MD = layer.recent_rows().cpu() if hasattr(layer, "recent_rows") else None
        before_ND, after_ND = clouds
        if labels_N is not None:  # a reservoir keeps floats
            labels_N = labels_N if self._scores else labels_N.long()
        labels_N = labels_N if self._owned[site] else None
        found = site_measures(before_ND, after_ND, labels_N, queue_MD)
        return {f"val/{site}/{name}": value.float() for name, value in found.items()}

    def _labels(self, ids_N: Tensor, batch: Batch) -> list[Tensor]:
        """The class of the example of each id, as one more cloud `[N, 1]`, where it is needed."""
        if not self.of_labels:
            return []
        example_N = (index_of(ids_N)[:, None] == batch.index).int().argmax(dim=1)
        return [batch.labels[example_N, None]]

    def _measure(self, rows_ND: Tensor, labels_N: Tensor | None, place: str) -> dict[str, Tensor]:
        finite_N = torch.isfinite(rows_ND).all(dim=1)
        n_lost = float((~finite_N).sum())
        values = {f"isotropy/n_rows/{place}": torch.tensor(len(rows_ND) - n_lost)}
        if n_lost:
            values[f"isotropy/n_rows_not_finite/{place}"] = torch.tensor(n_lost)
            rows_ND = rows_ND[finite_N]
            labels_N = None if labels_N is None else labels_N[finite_N]
        if len(rows_ND) < 2:
            return values  # no pair to measure; the row count says so
        with shared(rows_ND):
            for name, metric in self.metrics.items():
                labels = labels_N if name in self.of_labels else None
                try:
                    known = {} if labels is None else {"labels": labels.long()}
                    found = metric(rows_ND, **known)
                except (ValueError, RuntimeError) as error:
                    self._tell(name, place, error)
                    continue
                for key, value in flat(name, found).items():
                    values[f"isotropy/{key}/{place}"] = value.float()
        return values

    def _tell(self, name: str, place: str, error: Exception) -> None:
        if name not in self._told:
            rank_zero_warn(f"isotropy/{name} is left out where it is not defined: {place}: {error}")
        self._told.add(name)
