"""The Lightning module: views, losses, one `observe` per optimizer step, scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from isotrain.model import IsotropicModel
from isotrain.training.optim import parameter_groups
from isotrain.transforms.identity import Identity
from isotrain.types import Batch, Objective, Task


class FineTuning(pl.LightningModule):
    """Fine-tunes a model on a task, with extra objectives.

    Args:
        model: encoder, isotropy layers, head.
        task: loss and metrics.
        objectives: extra losses by name; each is weighted and logged on its own.
        optimizer: parameter groups -> optimizer.
        schedule: (optimizer, num_warmup_steps, num_training_steps) -> LR scheduler.
        warmup_fraction: share of all steps with a rising learning rate.
        head_lr_factor: learning rate of the head over that of the encoder.
        prefill_batches: training batches that fill the queues of the isotropy layers, in
            evaluation mode, before the evaluation at step 0.
    """

    def __init__(
        self,
        model: IsotropicModel,
        task: Task,
        objectives: Mapping[str, Objective],
        optimizer: Callable[..., torch.optim.Optimizer],
        schedule: Callable[..., Any],
        warmup_fraction: float,
        head_lr_factor: float,
        prefill_batches: int,
    ) -> None:
        super().__init__()
        self.model, self.task = model, task
        self.objectives = dict(objectives)
        # those with parameters or buffers move, train and are saved with this module
        self.objective_modules = torch.nn.ModuleDict(
            {n: o for n, o in objectives.items() if isinstance(o, torch.nn.Module)}
        )
        self.n_views = max([1, *(o.n_views for o in self.objectives.values())])
        self.optimizer, self.schedule = optimizer, schedule
        self.warmup_fraction, self.prefill_batches = warmup_fraction, prefill_batches
        self.head_lr_factor = head_lr_factor
        self.scores = torch.nn.ModuleDict({"val_": task.metrics(), "test_": task.metrics()})
        self._pending: list[dict[str, Tensor]] = []  # rows since the last optimizer step
        self._observed_step = 0
        self._prefilled = False
        self.evaluated_step: int | None = None  # of the last validation

    def forward(self, batch: Batch) -> Any:
        """The model's output."""
        return self.model(batch)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Task loss plus the weighted objectives, over separate forward passes."""
        views = [self.model(batch) for _ in range(self.n_views)]
        loss = self.task.loss(views[0].logits, batch.labels)
        parts = {"train/task_loss": loss.detach()}
        for name, objective in self.objectives.items():
            part = objective(views[: objective.n_views], batch.labels)
            parts[f"train/{name}"] = part.detach()
            loss = loss + objective.weight * part
        self._pending.append({s: rows[0].detach() for s, rows in views[0].site_rows.items()})
        n = len(batch.labels)
        self.log("train/loss", loss.detach(), prog_bar=True, batch_size=n)
        self.log_dict(parts | self._counters("train"), batch_size=n)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        """Feed the queues, once per optimizer step, with the rows of all its micro-batches."""
        if self.trainer.global_step > self._observed_step:
            self._observed_step = self.trainer.global_step
            rows = {s: torch.cat([rows[s] for rows in self._pending]) for s in self._pending[0]}
            self.model.observe(rows)
            self._pending.clear()

    def on_validation_start(self) -> None:
        """Freeze the statistics that evaluation uses."""
        self._fit_transforms()

    def on_test_start(self) -> None:
        """Freeze the statistics that evaluation uses."""
        self._fit_transforms()

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Scores on dev; the output goes to the callbacks."""
        return self._evaluate("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Scores on test."""
        return self._evaluate("test", batch)

    def on_validation_epoch_end(self) -> None:
        """Log the scores over all of dev."""
        self.evaluated_step = self.trainer.global_step
        self._log_scores("val")

    def on_test_epoch_end(self) -> None:
        """Log the scores over all of test."""
        self._log_scores("test")

    def configure_optimizers(self) -> Any:
        """Optimizer over the trainable parameters, schedule over optimizer steps."""
        optimizer = self.optimizer(parameter_groups(self, self.model.head))
        for group in optimizer.param_groups:
            if group["is_head"]:
                group["lr"] *= self.head_lr_factor
        n_steps = int(self.trainer.estimated_stepping_batches)
        scheduler = self.schedule(
            optimizer=optimizer,
            num_warmup_steps=int(self.warmup_fraction * n_steps),
            num_training_steps=n_steps,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def _evaluate(self, stage: str, batch: Batch) -> dict[str, Any]:
        output = self.model(batch)
        loss = self.task.loss(output.logits, batch.labels)
        self.log(f"{stage}/loss", loss, batch_size=len(batch.labels))
        self.log_dict(self._counters(stage), reduce_fx="sum", on_step=False, on_epoch=True)
        predictions = self.task.predictions(output.logits)
        self.scores[f"{stage}_"].update(predictions, batch.labels)  # type: ignore[operator]
        return {"output": output}

    def _log_scores(self, stage: str) -> None:
        # Lightning would name the last batch, one less than the steps the weights have seen.
        self.log("step", float(self.trainer.global_step))
        scores: Any = self.scores[f"{stage}_"]
        for name, value in scores.compute().items():
            self.log(f"{stage}/{name}", value, prog_bar=name == self.task.monitor)
        scores.reset()

    def _counters(self, stage: str) -> dict[str, Tensor]:
        return {
            f"{stage}/{site}/{name}": value
            for site, transform in self.model.transforms.items()
            for name, value in transform.counters.items()  # type: ignore[operator, union-attr]
        }

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip; under bf16 directly, as there is no gradient scale that a fused step undoes."""
        if self.trainer.precision == "bf16-mixed" and gradient_clip_algorithm in (None, "norm"):
            if gradient_clip_val:
                torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
            return
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    @torch.no_grad()
    def _fit_transforms(self) -> None:
        """Freeze the layers' statistics, in the order of the forward pass.

        The first site is fitted on its queue. What stands before a later site depends on the
        frozen layers below it, so its rows are collected anew behind them.
        """
        layers = self.model.transforms
        if all(isinstance(layer, Identity) for layer in layers.values()):
            return
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        first, *later = self.model.sites
        layers.train()  # statistics of the batch: none are frozen yet
        if self.trainer.global_step == 0 and not self._prefilled:
            for rows in self._rows_of_training_batches():
                self.model.observe(rows)
            self._prefilled = True
        layers[first].fit()  # type: ignore[operator]
        for below, site in zip(self.model.sites, later, strict=False):
            layers[below].eval()
            rows_ND = torch.cat([rows[site] for rows in self._rows_of_training_batches()])
            layers[site].fit(rows_ND)  # type: ignore[operator]
        for module, mode in modes:
            module.training = mode

    def _rows_of_training_batches(self) -> Iterator[dict[str, Tensor]]:
        """Rows before each site, of the first `prefill_batches` training batches."""
        loader = self.trainer.datamodule.train_dataloader()  # type: ignore[attr-defined]
        for batch in islice(loader, self.prefill_batches):
            with self.trainer.precision_plugin.forward_context():
                output = self.model(batch.to(self.device))
            yield {site: before_ND for site, (before_ND, _) in output.site_rows.items()}
