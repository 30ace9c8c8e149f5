"""The isotropy of every layer, and before and after each isotropy layer, at each validation.

A = Q·B sequences, T tokens, L blocks, D hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from isotrain.geometry.reservoir import Reservoir
from isotrain.geometry.rows import finite_rows, row_ids
from isotrain.types import Batch, ModelOutput, RowMetric

VIEWS = ("cls", "tokens")  # first token of each sequence; every non-pad token


class IsotropyMonitor(pl.Callback):
    """Logs `isotropy/<metric>/layer_LL/<view>` and `isotropy/<metric>/<site>/<before|after>`.

    At most `max_rows` rows are kept per view and site, those whose (row, position) hashes
    lowest: the same ones at every validation and for any batch size. Memory is
    `max_rows`·D·4 bytes × (2·(L+1) + 2·sites), whatever the size of the data, and a float64 copy
    of one cloud while it is measured. Each metric is logged beside `n_rows`, the rows it was
    measured on; rows with a NaN are left out and counted in `n_rows_not_finite`. With several
    processes the rows are those that one process would keep.

    Args:
        metrics: functions `[N, D] -> scalar` (or a flat dict of them) by name.
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
        self._reservoirs: dict[str, Reservoir] = {}

    def budget_bytes(self, width: int, n_blocks: int, n_sites: int) -> int:
        """Bytes held at most between two validations."""
        return self.max_rows * width * 4 * (len(VIEWS) * (n_blocks + 1) + 2 * n_sites)

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
        """Offer the rows of a batch to the reservoirs."""
        output: ModelOutput = outputs["output"]
        ids_AT = row_ids(batch.index, batch.n_sequences, batch.input_ids.shape[1])
        flat = [hidden.flatten(0, 1) for hidden in output.hidden_states]  # [A·T, D]
        places = {
            "cls": torch.arange(len(ids_AT), device=ids_AT.device) * ids_AT.shape[1],
            "tokens": batch.attention_mask.flatten().nonzero().flatten(),
        }
        for view in VIEWS:
            ids_N = ids_AT.flatten()[places[view]]
            self._reservoir(view).add(ids_N, flat, places[view])
        for site, (before_ND, after_ND) in output.site_rows.items():
            self._reservoir(site + "_site").add(output.site_ids[site], [before_ND, after_ND])

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the kept rows and log every value."""
        values: dict[str, Tensor] = {}
        for name, reservoir in self._reservoirs.items():
            if trainer.world_size > 1:
                reservoir.exchange()
            for number in range(reservoir.n_clouds):
                rows_ND = reservoir.cloud(number)
                if name in VIEWS:
                    place = f"layer_{number:02d}/{name}"
                else:
                    place = f"{name.removesuffix('_site')}/{('before', 'after')[number]}"
                values |= self._measure(rows_ND, place)
        self._reservoirs = {}
        pl_module.log_dict(values, on_step=False, on_epoch=True, sync_dist=True)
        shown = [key for key in values if key.startswith(f"isotropy/{self.headline}/layer_")]
        if shown:
            last = [key for key in shown if key.endswith("/tokens")][-1]
            shown_value = values[last]
            pl_module.log(self.headline, shown_value, prog_bar=True, logger=False, sync_dist=True)

    def _reservoir(self, name: str) -> Reservoir:
        if name not in self._reservoirs:
            self._reservoirs[name] = Reservoir(self.max_rows)
        return self._reservoirs[name]

    def _measure(self, rows_ND: Tensor, place: str) -> dict[str, Tensor]:
        finite_ND = finite_rows(rows_ND)
        values = {f"isotropy/n_rows/{place}": torch.tensor(float(len(finite_ND)))}
        if len(finite_ND) < len(rows_ND):
            n_lost = float(len(rows_ND) - len(finite_ND))
            values[f"isotropy/n_rows_not_finite/{place}"] = torch.tensor(n_lost)
            rows_ND = finite_ND
        if len(rows_ND) < 2:
            return values  # no pair to measure; the row count says so
        for name, metric in self.metrics.items():
            found = metric(rows_ND)
            parts = found if isinstance(found, dict) else {"": found}
            for part, value in parts.items():
                key = f"{name}_{part}" if part else name
                values[f"isotropy/{key}/{place}"] = value.float()
        return values
