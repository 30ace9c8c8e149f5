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

from isotrain.runs.keys import DEV, TRAINING, VIEWS, CurveKey, parse_key
from isotrain.runs.snapshots import write_snapshot
from isotrain.training.loggers.jsonl import RecordLog, send
from isotrain.training.monitor.measurement import Measurement, site_measures
from isotrain.training.monitor.sampling import CloudSampler, SampledCloud
from isotrain.training.monitor.snapshot_arrays import snapshot_of
from isotrain.types import Batch, RowMetric


class IsotropyMonitor(pl.Callback):
    """Log `isotropy/<metric>/layer_LL/<view>` and `isotropy/<metric>/<site>/<before|after>`.

    At every validation it measures up to `max_rows` embeddings of dev in each cloud, always the
    same ones (see `CloudSampler`), and the effect of each isotropy layer (`site_measures`, logged
    as `val/<site>/<name>`). Without an isotropy layer, a site logs its output only. Metrics that
    need `reference` compare with the same embeddings at step 0. Training steps with an `output`
    are measured under `train_isotropy/`, with dropout.

    Loggers get the scalars of `isotrain.runs.keys.few`; a `RecordLog` gets every value, those of
    an evaluation from `EvaluationRecords`. `newest` has the values of the latest evaluation.

    Memory is `max_rows`·D·4 bytes × (V·(L+1) + 2·sites) for V views, whatever the size of the data.
    It doubles if a metric compares with step 0.

    Args:
        metrics: functions `[N, D] -> scalar` (or a flat dict of them) by name; one with an argument
            `labels`, `groups` or `reference` gets classes (five slices of scores), words, or the
            embeddings of the first evaluation.
        max_rows: maximum number of embeddings per cloud.
        headline: names of values that progress bar and loggers show (`lid_value`, not `lid`).
        views: of each layer: cls, tokens, mean.
        map_rows: embeddings on the map of a snapshot (see `isotrain.runs.snapshots`); 0 = no
            snapshots.
        folder: of the run, for snapshots; None = none are taken.
    """

    def __init__(
        self,
        metrics: Mapping[str, RowMetric],
        max_rows: int,
        headline: Sequence[str] = (),
        views: Sequence[str] = VIEWS,
        map_rows: int = 0,
        folder: Path | None = None,
    ) -> None:
        super().__init__()
        self.measure = Measurement(metrics)
        self.max_rows, self.headline, self.views = max_rows, list(headline), tuple(views)
        self.map_rows, self.folder = map_rows, folder
        self.newest: dict[str, float] = {}
        self._rows: CloudSampler | None = None  # of the running evaluation
        self._step_rows: CloudSampler | None = None  # of the current optimizer step
        self._reference: dict[str, tuple[Tensor, Tensor]] = {}  # ids, embeddings of each cloud

    def state_dict(self) -> dict[str, Any]:
        """The reference embeddings, so that a resumed run compares with the same ones."""
        return {"reference": {name: list(pair) for name, pair in self._reference.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the reference of the checkpoint."""
        self._reference = {name: tuple(pair) for name, pair in state_dict["reference"].items()}

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Reset the sampler."""
        self._rows = None if trainer.sanity_checking else self._empty(pl_module)

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

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Measure the sampled embeddings and log every value."""
        if self._rows is None:
            return
        rows, self._rows = self._rows, None
        if trainer.world_size > 1:
            rows.exchange()
        if trainer.global_step == 0 and self.measure.compares:
            # in every process: each writes its part of a checkpoint
            self._reference = {cloud.name: (cloud.id_N, cloud.x_ND) for cloud in rows.clouds()}
        if trainer.is_global_zero:
            self.newest = self._evaluate(rows, pl_module)
            if not any(isinstance(log, RecordLog) for log in trainer.loggers):
                send(trainer, self.newest, self.headline, trainer.global_step)
            self._show(pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Sample a training batch with an output; measure after its optimizer step."""
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
            send(trainer, values, self.headline, trainer.global_step)

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Discard an incomplete step or evaluation."""
        self._rows = self._step_rows = None

    def _empty(self, module: Any) -> CloudSampler:
        layers = module.model.transforms.items()
        bare = [site for site, layer in layers if not layer.changes_rows]
        return CloudSampler(self.max_rows, self.views, bare)

    @torch.no_grad()
    def _evaluate(self, rows: CloudSampler, module: Any) -> dict[str, float]:
        """Measure every value of an evaluation, and write its snapshot if there is a folder."""
        values: dict[str, float] = {}
        arrays: dict[str, np.ndarray] = {}
        tokenizer = module.model.encoder.tokenizer
        before_ND: Tensor | None = None
        for cloud in rows.clouds():
            values |= self._values(cloud, DEV)
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

    def _values(self, cloud: SampledCloud, of: str) -> dict[str, float]:
        """Values of one cloud, by key."""
        id_N, reference_ND = self._reference.get(cloud.name, (None, None))
        is_known = of == DEV and id_N is not None and torch.equal(id_N, cloud.id_N)
        values = self.measure(cloud, reference_ND if is_known else None)
        return {CurveKey(k, cloud.where, cloud.view, of).text: value for k, value in values.items()}

    def _show(self, module: Any) -> None:
        """Show the first headline metric in the bar: for the last layer's tokens, if measured."""
        view = "tokens" if "tokens" in self.views else (*self.views, "after")[0]
        curves = {key: parse_key(key) for key in self.newest}
        for name in self.headline[:1]:
            of = [key for key, c in curves.items() if c and (c.metric, c.view) == (name, view)]
            if of:
                value = self.newest[max(of)]
                module.log(name, value, prog_bar=True, logger=False, rank_zero_only=True)
