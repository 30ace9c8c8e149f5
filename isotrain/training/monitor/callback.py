"""Isotropy of every layer, and before and after each isotropy layer, during training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from isotrain.runs.keys import DEV, MEASURED, TRAINING, parse_key
from isotrain.runs.snapshots import write_snapshot
from isotrain.training.loggers.jsonl import RecordLog, send
from isotrain.training.monitor.hooks import MonitorHooks
from isotrain.training.monitor.measurement import site_measures
from isotrain.training.monitor.sampling import CloudSampler
from isotrain.training.monitor.snapshot_arrays import snapshot_of
from isotrain.types import Batch, RowMetric


class RunMonitor(MonitorHooks, pl.Callback):
    """The monitor of isotrain's own runs: also the embeddings around each isotropy layer.

    It reads the outputs of `FineTuning`, whose examples are named by their index in the data set.
    Beside the values of `MonitorHooks` it logs `isotropy/<metric>/<site>/<before|after>` and the
    effect of each isotropy layer (`site_measures`, as `val/<site>/<name>`). Without an isotropy
    layer, a site logs its output only. Training steps with an `output` are measured under
    `train_isotropy/`, with dropout.

    Loggers get the scalars of `isotrain.runs.keys.few`; a `RecordLog` gets every value, those of
    an evaluation from `EvaluationRecords`. Every isotropy value is also in
    `callback_metrics`.

    Memory is `max_rows`·D·4 bytes × (V·(L+1) + 2·sites) for V views, whatever the size of the data.
    It doubles if a metric compares with step 0.

    Args: those of `MonitorHooks`, and
        headline: names of values that progress bar and loggers show (`lid_value`, not `lid`).
        map_rows: embeddings on the map of a snapshot (see `isotrain.runs.snapshots`); 0 = no
            snapshots.
        folder: of the run, for snapshots; None = none are taken.
    """

    def __init__(
        self,
        metrics: Mapping[str, RowMetric],
        max_rows: int,
        headline: Sequence[str] = (),
        views: Sequence[str] = MEASURED,
        map_rows: int = 0,
        folder: Path | None = None,
    ) -> None:
        super().__init__(metrics, views, max_rows)
        self.headline, self.map_rows, self.folder = list(headline), map_rows, folder
        self._step_rows: CloudSampler | None = None  # of the current optimizer step

    def sampler(self, module: Any) -> CloudSampler:
        """The empty sample of an evaluation or training step, with the model's sites."""
        layers = module.model.transforms.items()
        bare = [site for site, layer in layers if not layer.changes_rows]
        return CloudSampler(self.max_rows, self.views, bare)

    def listen(self, module: Any) -> None:
        """Nothing: the module gives its outputs."""

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Sample a batch of dev; a second loader has held-out training examples."""
        if self._rows is not None and dataloader_idx == 0:
            self._rows.offer(batch, outputs["output"])

    def report(self, trainer: pl.Trainer, module: Any) -> None:
        """Log the newest values, and show the first headline metric in the bar."""
        if trainer.is_global_zero:
            if not any(isinstance(logger, RecordLog) for logger in trainer.loggers):
                send(trainer, self.newest, self.headline, trainer.global_step)
            self._show(module)
        values = trainer.strategy.broadcast(self.newest)
        curves = {key: float(value) for key, value in values.items() if parse_key(key)}
        module.log_dict(curves, logger=False, sync_dist=True)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Sample a training batch with an output; measure after its optimizer step."""
        if not isinstance(outputs, Mapping) or "output" not in outputs:
            return
        sampler = self._step_rows = self._step_rows or self.sampler(pl_module)
        sampler.offer(batch, outputs["output"])
        if trainer.global_step < outputs["step"]:
            return  # within an accumulation
        self._step_rows = None
        if trainer.world_size > 1:
            sampler.exchange()
        if trainer.is_global_zero:
            values: dict[str, float] = {}
            with torch.no_grad():
                for cloud in sampler.clouds():
                    values |= self.cloud_values(cloud, TRAINING)
            send(trainer, values, self.headline, trainer.global_step)

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Discard an incomplete step or evaluation."""
        super().on_exception(trainer, pl_module, exception)
        self._step_rows = None

    @torch.no_grad()
    def values(self, rows: CloudSampler, module: Any) -> dict[str, float]:
        """Measure every value of an evaluation, and write its snapshot if there is a folder."""
        values: dict[str, float] = {}
        arrays: dict[str, np.ndarray] = {}
        tokenizer = module.model.encoder.tokenizer
        before_ND: Tensor | None = None
        for cloud in rows.clouds():
            values |= self.cloud_values(cloud, DEV)
            with self._snapshot_errors():
                if self.folder is not None and self.map_rows:
                    arrays |= snapshot_of(cloud, self.map_rows, rows.frequency_V, tokenizer)
            if before_ND is not None:  # the input of the layer with this output
                queue_MD = module.model.transforms[cloud.where].recent_rows()
                queue_MD = None if queue_MD is None else queue_MD.cpu()
                labels_N = cloud.label_N if cloud.is_owned else None
                effects = site_measures(before_ND, cloud.x_ND, labels_N, queue_MD)
                values |= {f"val/{cloud.where}/{name}": float(x) for name, x in effects.items()}
            before_ND = cloud.x_ND if cloud.view == "before" else None
        with self._snapshot_errors():
            if self.folder is not None and arrays:
                write_snapshot(self.folder, module.weights_step, arrays)
        return values

    @contextmanager
    def _snapshot_errors(self) -> Iterator[None]:
        """A solver failure or full disk disables snapshots but does not stop the run."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            self.folder = None
            rank_zero_warn(f"no more snapshots are taken ({type(error).__name__}: {error})")

    def _show(self, module: Any) -> None:
        """Show the first headline metric in the bar: for the last layer's tokens, if measured."""
        view = "tokens" if "tokens" in self.views else (*self.views, "after")[0]
        curves = {key: parse_key(key) for key in self.newest}
        for name in self.headline[:1]:
            keys = [key for key, c in curves.items() if c and (c.metric, c.view) == (name, view)]
            if keys:
                value = self.newest[max(keys)]
                module.log(name, value, prog_bar=True, logger=False, rank_zero_only=True)
