"""Isotropy of every layer, and before and after each isotropy layer, during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from isotrain.geometry.cloud import shared
from isotrain.runs.keys import DEV, TRAINING, VIEWS, CurveKey, few, metric_of, parse_key
from isotrain.runs.snapshots import write_snapshot
from isotrain.training.loggers.jsonl import RecordLog
from isotrain.training.monitor.measurement import Measurement, site_measures
from isotrain.training.monitor.sampling import Watched, WatchedRows
from isotrain.training.monitor.snapshot_arrays import snapshot_of
from isotrain.types import Batch, RowMetric

Reference = dict[str, tuple[Tensor, Tensor]]  # ids and rows of each cloud by its name


class IsotropyMonitor(pl.Callback):
    """Logs `isotropy/<metric>/layer_LL/<view>` and `isotropy/<metric>/<site>/<before|after>`.

    At every validation, of at most `max_rows` rows of dev in each cloud, always the same ones (see
    `WatchedRows`); of each site also `val/<site>/<name>`: what `site_measures` finds. A site
    without an isotropy layer has `after` alone. Metrics that need `reference` compare with the
    same rows at the first evaluation, before training. Of training steps whose result has an
    `output`, and the `step` they belong to, also of the rows as training sees them, dropout and
    all, under `train_isotropy/`.

    Loggers get the few scalars of `isotrain.runs.keys.few`; a `RecordLog` gets every value, in the
    record of the evaluation. `newest` has the values of the newest evaluation.

    Memory is `max_rows`·D·4 bytes × (V·(L+1) + 2·sites) for V views, twice that where a metric
    needs a reference, whatever the size of the data, and a float64 copy of one cloud while it is
    measured. With several processes the first one measures the rows that one process would keep.

    Args:
        metrics: functions `[N, D] -> scalar` (or a flat dict of them) by name; one with an argument
            `labels`, `groups` or `reference` gets classes (five slices of scores), words, or rows.
        max_rows: row budget of each cloud.
        headline: names of values that progress bar and loggers show (`lid_value`, not `lid`); None
            = the first two metrics.
        views: of each layer: cls, tokens, mean.
        map_rows: rows on the map of a snapshot (see `isotrain.runs.snapshots`); 0 = no snapshots.
        folder: of the run, for snapshots; None = none are taken.
    """

    def __init__(
        self,
        metrics: Mapping[str, RowMetric],
        max_rows: int,
        headline: Sequence[str] | None = None,
        views: Sequence[str] = VIEWS,
        map_rows: int = 0,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self.headline = list(metrics)[:2] if headline is None else list(headline)
        for name in self.headline:
            if metric_of(name, metrics) is None:
                raise ValueError(
                    f"headline must be among the metrics {', '.join(metrics)}, got {name!r}"
                )
        self.measure = Measurement(metrics)
        self.max_rows, self.views = max_rows, tuple(views)
        self.map_rows, self.folder = map_rows, folder
        self.newest: dict[str, float] = {}
        self._rows: WatchedRows | None = None  # of the evaluation under way
        self._step_rows: WatchedRows | None = None  # of the optimizer step under way
        self._reference: Reference = {}

    def state_dict(self) -> dict[str, Any]:
        """The reference: a resumed run compares with the same rows."""
        return {"reference": {name: list(known) for name, known in self._reference.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the reference of the checkpoint."""
        reference = state_dict["reference"].items()
        self._reference = {name: (id_N, x_ND) for name, (id_N, x_ND) in reference}

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start empty."""
        self._rows = None if trainer.sanity_checking else self._empty(pl_module)

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Look at a batch of dev."""
        if self._rows is None or dataloader_idx:  # training rows that are held out
            return
        self._rows.offer(batch, outputs["output"])

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the kept rows and log every value."""
        if self._rows is None:
            return
        rows, self._rows = self._rows, None
        if trainer.world_size > 1:
            rows.exchange()
        at_start = trainer.global_step == 0 and self.measure.compares
        if at_start:  # in every process: each writes its part of a checkpoint
            self._reference = {cloud.name: (cloud.id_N, cloud.x_ND) for cloud in rows.clouds()}
        if trainer.is_global_zero:
            selected = getattr(pl_module, "selected_step", None)
            step = trainer.global_step if selected is None else selected
            self.newest = self._evaluate(rows, pl_module, step)
            self._send(trainer, self.newest, join=True)
            self._show(pl_module)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Look at a training batch whose output was handed over; measure once its step is made."""
        if not isinstance(outputs, Mapping) or "output" not in outputs:
            return
        rows = self._step_rows = self._step_rows or self._empty(pl_module)
        rows.offer(batch, outputs["output"])
        if trainer.global_step < outputs["step"]:
            return  # within an accumulation
        self._step_rows = None
        if trainer.world_size > 1:
            rows.exchange()
        if trainer.is_global_zero:
            values: dict[str, float] = {}
            with torch.no_grad():
                for cloud in rows.clouds():
                    values |= self._values(cloud, TRAINING)
            self._send(trainer, values, join=False)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Forget the rows of half a step or evaluation."""
        self._rows = self._step_rows = None

    def _empty(self, module: Any) -> WatchedRows:
        layers = module.model.transforms.items()
        bare = [site for site, layer in layers if not layer.changes_rows]
        return WatchedRows(self.max_rows, self.views, bare)

    @torch.no_grad()
    def _evaluate(self, rows: WatchedRows, module: Any, step: int) -> dict[str, float]:
        """Every value of an evaluation; and its snapshot, where there is a folder for it."""
        values: dict[str, float] = {}
        arrays: dict[str, np.ndarray] = {}
        before: Watched | None = None
        for cloud in rows.clouds():
            is_finite = bool(torch.isfinite(cloud.x_ND).all())
            with shared(cloud.x_ND) if is_finite else nullcontext():
                values |= self._values(cloud, DEV)
                arrays |= self._arrays(cloud, rows.frequency_V, module)
            if before is not None and before.where == cloud.where:
                queue_MD = module.model.transforms[cloud.where].recent_rows()
                queue_MD = None if queue_MD is None else queue_MD.cpu()
                labels_N = cloud.label_N if cloud.is_owned else None
                found = site_measures(before.x_ND, cloud.x_ND, labels_N, queue_MD)
                values |= {f"val/{cloud.where}/{name}": float(x) for name, x in found.items()}
            before = cloud if cloud.view == "before" else None
        if arrays and self.folder is not None:
            try:
                write_snapshot(self.folder, step, arrays)
            except OSError as error:
                self._no_more_snapshots(error)
        return values

    def _arrays(self, cloud: Watched, frequency_V: Tensor, module: Any) -> dict[str, np.ndarray]:
        """What a snapshot has of a cloud; a solver that fails costs the maps and never the run."""
        if self.folder is None or not self.map_rows:
            return {}
        tokenizer = module.model.encoder.tokenizer
        try:
            return snapshot_of(cloud, self.map_rows, frequency_V, tokenizer)
        except RuntimeError as error:
            self._no_more_snapshots(error)
            return {}

    def _no_more_snapshots(self, error: Exception) -> None:
        self.folder = None
        rank_zero_warn(f"no more snapshots are taken ({type(error).__name__}: {error})")

    def _values(self, cloud: Watched, of: str) -> dict[str, float]:
        """Those of one cloud, by key."""
        id_N, reference_ND = self._reference.get(cloud.name, (None, None))
        is_known = of == DEV and id_N is not None and torch.equal(id_N, cloud.id_N)
        found = self.measure(cloud, reference_ND if is_known else None)
        return {CurveKey(k, cloud.where, cloud.view, of).text: value for k, value in found.items()}

    def _send(self, trainer: pl.Trainer, values: dict[str, float], join: bool) -> None:
        for logger in trainer.loggers:
            if not isinstance(logger, RecordLog):
                logger.log_metrics(few(values, self.headline), trainer.global_step)
            elif join:  # the row of this evaluation comes next
                logger.join(values)
            else:
                logger.log_metrics(values, trainer.global_step)

    def _show(self, module: pl.LightningModule) -> None:
        """The first headline metric in the bar: of the last layer's tokens, where they are seen."""
        view = "tokens" if "tokens" in self.views else (*self.views, "after")[0]
        places = {key: parse_key(key) for key in self.newest}
        for name in self.headline[:1]:
            of = [k for k, p in places.items() if p and p.view == view and p.metric == name]
            if of:
                value = self.newest[max(of)]
                module.log(name, value, prog_bar=True, logger=False, rank_zero_only=True)
