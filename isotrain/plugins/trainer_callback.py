"""The isotropy of every layer of a model that a Hugging Face Trainer trains. N rows, D hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from isotrain.geometry.rows import wide
from isotrain.metrics.suite import named, needs
from isotrain.plugins.hidden_states import backbone_of, only_looking, recorded
from isotrain.plugins.text_rows import examples_of
from isotrain.runs.keys import VIEWS, CurveKey
from isotrain.training.data import collate
from isotrain.training.monitor.measurement import Measurement
from isotrain.training.monitor.sampling import CloudSampler
from isotrain.types import ModelOutput

if TYPE_CHECKING:
    from transformers import Trainer

METRICS = ("isoscore_corrected", "mean_cosine")


class IsotropyTrainerCallback(TrainerCallback):
    """Logs `isotropy/<metric>/layer_LL/<view>`, through the Trainer, whatever it logs to.

    `trainer.add_callback(IsotropyTrainerCallback(trainer, texts))`, for the Trainer of transformers
    and that of sentence-transformers. It measures before the first step, at each evaluation and
    after the last step: hidden states of the transformers model in `trainer.model` in evaluation
    mode, under the Trainer's mixed precision, promoted before any metric. Pads are no rows. The
    `max_rows` rows of a cloud are those whose (text, position) hash lowest, the same ones each
    time; `isotropy/n_rows/...` counts them. Modes, random generators and hooks of the model are
    left as they were. With several processes the first one measures.

    Rows with a NaN are left out and counted; a metric that a cloud does not allow is left out, and
    told once. Metrics that need `reference` compare with the same rows before the first step; a
    resumed run has none, and leaves them out.

    Args:
        trainer: whose model is measured, and by which values are logged.
        rows: texts, pairs of texts, or tokenised rows (see `examples_of`): a list, or a column.
        metrics: names of files in `isotrain.metrics`, or functions by name.
        views: of each layer: cls, tokens, mean.
        max_rows: row budget of each cloud; max_rows·D·4 bytes for each layer and view.
        labels: class or score of each row, for metrics that need them.
        batch_size: rows of a forward pass.
        max_length: tokens of a text at most.
        tokenizer: of texts; None = that of the Trainer or of the SentenceTransformer.

    Raises:
        ValueError: weights that are sharded over processes, no transformers model, an unknown
            metric or view, a metric that cannot have what it needs, or unusable rows.
    """

    def __init__(
        self,
        trainer: Trainer,
        rows: Iterable[Any],
        metrics: Iterable[str] | Mapping[str, Callable[..., Any]] = METRICS,
        views: Sequence[str] = VIEWS,
        max_rows: int = 2048,
        labels: Sequence[float] | None = None,
        batch_size: int = 32,
        max_length: int = 128,
        tokenizer: Any = None,
    ) -> None:
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ValueError(
                "one process measures, and under FSDP or DeepSpeed it has a part of the weights; "
                "train with DDP, or measure checkpoints with isotrain analyze"
            )
        if not views or set(views) - set(VIEWS):
            raise ValueError(f"views are some of {', '.join(VIEWS)}, got {list(views)}")
        functions = named(metrics)
        for name, function in functions.items():
            need = needs(function)
            if need == "positives" or (need == "labels" and labels is None):
                fix = "pass labels=, one a row" if need == "labels" else "leave it out"
                raise ValueError(f"{name} needs {need}, which texts alone do not have; {fix}")
        own = trainer.processing_class if tokenizer is None else tokenizer
        self.trainer, self.views, self.max_rows = trainer, tuple(views), max_rows
        self.examples, self.has_segments = examples_of(rows, own, max_length, labels)
        self.batch_size = batch_size
        self.measure = Measurement(functions)
        self._parts()  # or this model is refused now
        self._reference: dict[str, Tensor] = {}
        self._measured_at: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the model as it comes; a resumed run has that behind it."""
        self._measured_at = None
        if state.global_step == 0:
            self._log(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure after the last step, before trackers close and an older checkpoint is loaded."""
        if control.should_training_stop:
            self._log(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure, once a step, however many data sets are evaluated."""
        self._log(state)

    def _log(self, state: Any) -> None:
        if not state.is_world_process_zero or state.global_step == self._measured_at:
            return
        self._measured_at = state.global_step
        values: dict[str, float] = {}
        for cloud in self._rows().clouds():
            if state.global_step == 0 and self.measure.compares:
                self._reference[cloud.name] = cloud.x_ND
            found = self.measure(cloud, self._reference.get(cloud.name))
            values |= {CurveKey(k, cloud.where, cloud.view).text: v for k, v in found.items()}
        self.trainer.log(values)

    def _rows(self) -> CloudSampler:
        """The rows that are measured, of the model as it is now."""
        rows = CloudSampler(self.max_rows, self.views)
        model, backbone = self._parts()
        device = next(backbone.parameters()).device
        nothing = torch.zeros(0)
        by_length = sorted(self.examples, key=lambda example: len(example.input_ids[0]))
        with only_looking(model), recorded(backbone) as states:
            for start in range(0, len(by_length), self.batch_size):
                batch = collate(by_length[start : start + self.batch_size], pad_id=0).to(device)
                segments = {"token_type_ids": batch.token_type_ids} if self.has_segments else {}
                states.clear()
                with self.trainer.accelerator.autocast():
                    backbone(
                        input_ids=batch.input_ids, attention_mask=batch.attention_mask, **segments
                    )
                rows.offer(batch, ModelOutput(tuple(map(wide, states)), nothing, nothing))
        return rows

    def _parts(self) -> tuple[nn.Module, nn.Module]:
        """The Trainer's model, and what has hidden states in it."""
        model: Any = self.trainer.model
        return model, backbone_of(model)
