"""Lightning module: forward passes, losses, one `observe` per optimizer step, scores."""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim import AdamW
from transformers import get_linear_schedule_with_warmup

from isotrain.encoders.trial import in_evaluation
from isotrain.geometry.rows import wide
from isotrain.model.distributed import n_processes, sum_over_processes
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.tasks.base import Task
from isotrain.training.callbacks.non_finite import NonFiniteGuard, check_weights
from isotrain.training.callbacks.resume import KEY
from isotrain.training.layer_statistics import fit_layers
from isotrain.training.losses import ExtraLosses
from isotrain.training.optim import matrices_of_blocks, parameter_groups
from isotrain.training.solved_head import Solvable, solve_head
from isotrain.training.step import Step, Views
from isotrain.types import Batch, ModelOutput

ADAMW = partial(AdamW, lr=5e-5)


class FineTuning(pl.LightningModule):
    """Fine-tune a model on a task, with extra objectives; `TaskData` gives its batches.

    Args:
        model: encoder, isotropy layers, head.
        task: loss and metrics.
        step: a batch to what the losses get; None = a forward pass.
        extra: the objectives; None = the task loss alone.
        optimizer: parameter groups -> optimizer.
        schedule: (optimizer, num_warmup_steps, num_training_steps) -> LR scheduler.
        warmup_fraction: share of all steps for learning rate warm-up.
        head_lr_factor: learning rate of the head and all other non-encoder parameters, relative
            to that of the encoder's last block.
        layer_decay: learning rate of each block relative to the block above.
        prefill_batches: training batches that fill the layers' queues before step 0.
        refit_rows: maximum of training embeddings for a layer with `eval_stats="refit"`, and
            of examples for a solved head.
        solved_head: whether the head starts from the solution of `solve_head`, before step 0.
        output_every_steps: optimizer steps between outputs passed to callbacks; 0 = never.
        logs_evaluations: whether loggers get the scores from here; false = from
            `EvaluationRecords`, in one record.
    """

    fits_layers = True  # `FitLayers` is for other modules

    def __init__(
        self,
        model: IsotropicModel,
        task: Task,
        step: Step | None = None,
        extra: ExtraLosses | None = None,
        optimizer: Callable[..., torch.optim.Optimizer] = ADAMW,
        schedule: Callable[..., Any] = get_linear_schedule_with_warmup,
        warmup_fraction: float = 0.1,
        head_lr_factor: float = 1.0,
        layer_decay: float = 1.0,
        prefill_batches: int = 8,
        refit_rows: int = 16384,
        output_every_steps: int = 0,
        solved_head: bool = False,
        logs_evaluations: bool = True,
    ) -> None:
        super().__init__()
        self.model, self.task = model, task
        self.step, self.extra = step or Step(model), extra or ExtraLosses({})
        self.optimizer, self.schedule = optimizer, schedule
        self.warmup_fraction, self.prefill_batches = warmup_fraction, prefill_batches
        self.head_lr_factor, self.refit_rows = head_lr_factor, refit_rows
        self.layer_decay, self.output_every_steps = layer_decay, output_every_steps
        self.solved_head = solved_head
        self._to_loggers = None if logs_evaluations else False  # None: to all loggers
        stages = ("val_", "holdout_", "test_")
        self.scores = torch.nn.ModuleDict({stage: task.metrics() for stage in stages})
        self.guard = NonFiniteGuard()
        self._of_window: dict[str, list[Tensor]] = {}  # of each micro-batch of a step, to average
        self._of_step: dict[str, Any] = {}  # of a step as a whole
        self.of_callbacks: dict[str, float] = {}  # for the record of this step
        self._observed_step = 0
        self._prefilled = False
        self.evaluated_step: int | None = None  # of the last validation
        self.selected_step: int | None = None  # whose weights and frozen statistics were restored

    @classmethod
    def from_run(cls, folder: str | Path) -> "FineTuning":
        """The trained module of a finished run, in evaluation mode; its data are not needed.

        Raises:
            ValueError: the folder has no finished run with weights, or the record names code that
                is not allowed to run.
        """
        from isotrain.build import trained_parts  # here: it builds this class

        model, task, step = trained_parts(Path(folder))
        module = cls(model, task).eval()
        module.selected_step = step  # an evaluation keeps the frozen statistics of the run
        return module

    def setup(self, stage: str) -> None:
        """Convert the weights to the run's precision before a checkpoint is loaded into them."""
        if stage == "fit":
            # Lightning would first load a checkpoint's float64 weights as float32.
            self.trainer.precision_plugin.convert_module(self)
            if not self.training:  # as `from_run` gives it
                self.train()

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Task loss, if there is one, plus the weighted objectives, over separate forward passes.

        With several processes the task loss is weighted by this rank's share of the examples, and
        objectives read the embeddings of all. Callbacks get the first output if it is due. The
        gradient of a step is that of the mean over its micro-batches, also where an epoch ends.
        """
        views: Views = self.step(self.model, batch)
        task_loss = None
        if self.task.has_loss:
            task_loss = wide(self.task.training_loss(views.passes[0].logits, batch.labels))
            if n_processes() > 1:
                n = torch.tensor(float(len(batch.labels)), device=self.device)
                task_loss = n * n_processes() / sum_over_processes(n) * task_loss
        step = self.trainer.global_step
        loss, parts = self.extra(views.passes, batch, task_loss, step, views.start)
        if task_loss is not None:
            loss, parts = task_loss + loss, {"train/task_loss": task_loss.detach()} | parts
        assert isinstance(loss, Tensor)  # a task without a loss has objectives
        logged = _averaged({"train/loss": loss.detach()} | parts | self._counters("train"))
        self.guard.note(logged["train/loss"], parts, batch.index)
        self._note(logged)
        is_due = self.output_every_steps and (step + 1) % self.output_every_steps == 0
        # Lightning divides by the micro-batches of a whole step.
        loss = loss * (self.trainer.accumulate_grad_batches / self._window_size(batch_idx))
        return {"loss": loss} | (
            {"output": views.passes[0].detach(), "step": step + 1} if is_due else {}
        )

    def on_after_backward(self) -> None:
        """Note the counters of a micro-batch's backward pass."""
        self._note(self._counters("train", "gradient_counters"))

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Stop on a non-finite loss or gradient, then clip.

        Under bf16 directly, as there is no gradient scale for a fused step to undo.
        """
        has_scaler = self.trainer.precision == "16-mixed"  # its scaler skips steps on purpose
        by_norm = gradient_clip_algorithm in (None, "norm")
        gradients = [p.grad for p in self._weights if p.grad is not None]
        norm = None if has_scaler else torch.nn.utils.get_total_norm(gradients)
        self.guard.check(norm, self.trainer.global_step, self)
        self._of_step = {"optim/learning_rate": self._learning_rate(optimizer)}
        if norm is not None:
            self._of_step["optim/gradient_norm"] = norm  # before clipping
            if by_norm and gradient_clip_val:
                torch.nn.utils.clip_grads_with_norm_(self._weights, gradient_clip_val, norm)
        if has_scaler:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        elif not by_norm and gradient_clip_val:
            torch.nn.utils.clip_grad_value_(self._weights, gradient_clip_val)

    def on_train_batch_end(self, *_: Any) -> None:
        """Once per optimizer step: log, and update queues with all its micro-batches.

        Losses and counters are means over the micro-batches. Loggers get them directly: Lightning's
        `log` takes tenths of a millisecond for each value.
        """
        if self.trainer.global_step <= self._observed_step:
            return
        window, self._of_window = self._of_window, {}
        if self.is_record_due:
            values = {name: _mean(tensors) for name, tensors in window.items()} | self._of_step
            self.log("train/loss", values["train/loss"], True, logger=False, batch_size=1)
            record = {name: wide(torch.as_tensor(x)).item() for name, x in values.items()}
            record |= self.of_callbacks | {"epoch": self.trainer.current_epoch}
            self.of_callbacks = {}
            for logger in self.trainer.loggers:
                logger.log_metrics(record, self.trainer.global_step - 1)
                logger.save()
        self._observed_step = self.trainer.global_step
        self.extra.observe()
        self.step.observe(self.model)

    @property
    def is_record_due(self) -> bool:
        """Whether an optimizer step has just ended, and is recorded."""
        trainer: Any = self.trainer
        step, interval = trainer.global_step, trainer.log_every_n_steps
        is_due = (interval and step % interval == 0) or trainer.should_stop or trainer.fast_dev_run
        return bool(is_due) and step > self._observed_step

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue after the step of the checkpoint."""
        self._prefilled = True  # of a module that has trained, or was about to
        self.evaluated_step = checkpoint.get(KEY, {}).get("evaluated_step")  # of a run

    def on_train_start(self) -> None:
        """Fit layers with fixed statistics, and solve the head, unless an evaluation did."""
        self._observed_step, self._of_window = self.trainer.global_step, {}
        self.selected_step = None  # of the module of a run, which trains on
        layers = self.model.transforms.values()
        if self._solves_head() or any(layer.stats == "start" for layer in layers):
            self._fit_layers()

    def on_train_epoch_start(self) -> None:
        """Pass training examples to objectives that need them, with frozen statistics."""
        epoch = self.trainer.current_epoch
        if self.extra.asks_for_pass(epoch) and not self.trainer.enable_validation:
            self._fit_layers()  # no evaluation did
        with in_evaluation(self.model):
            self.extra.prepare(epoch, self._passes)

    def on_validation_start(self) -> None:
        """Freeze the statistics for evaluation, if the weights are finite."""
        check_weights(self, self.weights_step)
        self._fit_layers()

    on_test_start = on_validation_start

    def validation_step(
        self, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Any] | None:
        """Score dev, passing outputs to the callbacks; then held-out training examples."""
        outputs = self._evaluate("holdout" if dataloader_idx else "val", batch)
        return None if dataloader_idx else outputs

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Score test."""
        return self._evaluate("test", batch)

    def on_validation_epoch_end(self) -> None:
        """Log the scores over dev, and over the held-out training examples."""
        self.evaluated_step = self.trainer.global_step
        self._log_scores(*("val", "holdout")[: len(self.trainer.num_val_batches)])

    def on_test_epoch_end(self) -> None:
        """Log the scores over test."""
        self._log_scores("test")

    def configure_optimizers(self) -> Any:
        """Optimizer over parameters that train in any stage; schedule over optimizer steps."""
        optimizer = self.new_optimizer()
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

    def new_optimizer(self) -> torch.optim.Optimizer:
        """Optimizer over the trainable parameters, in groups with separate learning rates."""
        encoder = self.model.encoder
        marks_matrices = getattr(getattr(self.optimizer, "func", None), "marks_matrices", False)
        matrices = matrices_of_blocks(encoder) if marks_matrices else ()
        factors = self.layer_decay, self.head_lr_factor
        groups = parameter_groups(self, encoder, *factors, matrices)
        optimizer = self.optimizer(groups)
        for group in optimizer.param_groups:
            group["lr"] *= group["lr_factor"]
        return optimizer

    @cached_property
    def _weights(self) -> list[torch.nn.Parameter]:
        """Every parameter, in the order of the modules: walking through them takes long."""
        return list(self.parameters())

    def _learning_rate(self, optimizer: torch.optim.Optimizer) -> float:
        """Learning rate of the highest trainable encoder block; of the head if none trains."""
        groups = optimizer.param_groups
        encoder_lrs = [group["lr"] for group in groups if not group["is_head"]]
        return float(max(encoder_lrs or [group["lr"] for group in groups]))

    def _window_size(self, batch_idx: int) -> int:
        """Micro-batches of the optimizer step of this one: fewer at the end of an epoch."""
        n_micro_batches = self.trainer.accumulate_grad_batches
        first = batch_idx - batch_idx % n_micro_batches
        return int(min(n_micro_batches, self.trainer.num_training_batches - first))

    def _note(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self._of_window.setdefault(name, []).append(value)

    def _evaluate(self, stage: str, batch: Batch) -> dict[str, Any]:
        output = self.model(batch)
        loss = self.task.loss(output.logits, batch.labels)
        options: dict[str, Any] = {"sync_dist": True, "add_dataloader_idx": False}
        options["logger"] = self._to_loggers
        # A float: Lightning averages counts over processes, with integer division for integers.
        self.log(f"{stage}/loss", loss, batch_size=float(len(batch.labels)), **options)  # type: ignore[arg-type]
        n = torch.tensor(float(len(batch.labels)), device=self.device)
        counters = {f"{stage}/n_rows": n} | self._counters(stage)
        self.log_dict(counters, reduce_fx="sum", on_step=False, on_epoch=True, **options)
        predictions = self.task.predictions(output.logits)
        group = self.task.groups(stage, batch.index)
        self.scores[f"{stage}_"].update(predictions, batch.labels, group=group)  # type: ignore[operator]
        return {"output": output, "predictions": predictions}

    def _log_scores(self, *stages: str) -> None:
        for stage in stages:
            scores: Any = self.scores[f"{stage}_"]
            for name, value in scores.compute().items():
                # over all processes: torchmetrics gathers
                in_bar = name == self.task.monitor and stage != "holdout"
                to_loggers = self._to_loggers
                self.log(f"{stage}/{name}", value, in_bar, logger=to_loggers, sync_dist=True)
            with torch.inference_mode(
                False
            ):  # the next evaluation may be without, and add in place
                scores.reset()

    def _counters(self, stage: str, kind: str = "counters") -> dict[str, Tensor]:
        """Counters of the layers, on the device: NCCL cannot send from the CPU.

        `gradient_counters` are of the last backward pass, equal in all processes.
        """
        return {
            f"{stage}/{site}/{name}": value.to(self.device)
            for site, transform in self.model.transforms.items()
            for name, value in getattr(transform, kind).items()
        }

    @property
    def weights_step(self) -> int:
        """The step of the weights: the current one, or that of the best checkpoint."""
        return self.trainer.global_step if self.selected_step is None else self.selected_step

    def _fit_layers(self) -> None:
        if self.selected_step is not None:  # loaded with the selected weights
            return
        prefill = self.trainer.global_step == 0 and not self._prefilled
        solves_head = self._solves_head()
        fit_layers(self.model, self._passes, self.prefill_batches, self.refit_rows, prefill=prefill)
        if solves_head:
            with in_evaluation(self.model):
                solve_head(cast(Solvable, self.model.head), self._passes(None), self.refit_rows)
        self._prefilled = True

    def _solves_head(self) -> bool:
        return self.solved_head and self.trainer.global_step == 0 and not self._prefilled

    def _passes(self, n_batches: int | None) -> Iterator[tuple[Batch, ModelOutput]]:
        """The first training batches, undivided in every process, and the model's outputs."""
        datamodule: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        for batch in datamodule.first_batches(n_batches):
            batch = batch.to(self.device)
            with self.trainer.precision_plugin.forward_context():
                output = self.model(batch)
            yield batch, output


def _mean(values: list[Tensor]) -> Tensor:
    """The mean of the values; a single value is returned unchanged, of any type."""
    return values[0] if len(values) == 1 else wide(torch.stack(values)).mean()


def _averaged(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Average values over processes, in one message."""
    if n_processes() == 1:
        return values
    packed = torch.stack([value.float() for value in values.values()])
    return dict(zip(values, sum_over_processes(packed) / n_processes(), strict=True))
