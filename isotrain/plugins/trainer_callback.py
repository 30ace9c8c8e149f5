"""The isotropy of every layer of a model that a Hugging Face Trainer trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from isotrain.plugins.layer_isotropy import LayerIsotropy
from isotrain.training.monitor.hooks import METRICS

if TYPE_CHECKING:
    from transformers import Trainer


class IsotropyTrainerCallback(TrainerCallback):
    """Logs `isotropy/<metric>/layer_LL/<view>` through the Trainer.

    `trainer.add_callback(IsotropyTrainerCallback(trainer, texts))`, for the Trainer of transformers
    and that of sentence-transformers. It measures as `LayerIsotropy` does: before the first step,
    at each evaluation and after the last step, under the Trainer's mixed precision, in rank 0. A
    resumed run leaves out the metrics that compare with step 0 (`reference`).

    Args:
        trainer: whose model is measured, and by which values are logged.
        rows: texts, pairs of texts, or tokenised examples, as for `LayerIsotropy`.
        metrics: as for `LayerIsotropy`.
        tokenizer: of texts; None = that of the Trainer or of the SentenceTransformer.
        options: views, max_rows, labels, batch_size and max_length of `LayerIsotropy`.

    Raises:
        ValueError: weights that are sharded over processes, or what `LayerIsotropy` rejects.
    """

    def __init__(
        self,
        trainer: Trainer,
        rows: Iterable[Any],
        metrics: Iterable[str | Callable[..., Any]] | Mapping[str, Callable[..., Any]] = METRICS,
        *,
        tokenizer: Any = None,
        **options: Any,
    ) -> None:
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ValueError(
                "one process measures, and under FSDP or DeepSpeed it has a part of the weights; "
                "train with DDP, or measure checkpoints with isotrain analyze"
            )
        tokenizer = trainer.processing_class if tokenizer is None else tokenizer
        options["autocast"] = lambda: trainer.accelerator.autocast()  # it does not exist yet
        self.trainer = trainer
        model: Any = trainer.model
        self.isotropy = LayerIsotropy(model, rows, tokenizer, metrics, **options)
        self._measured_at: int | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the model at step 0; a resumed run does not."""
        self._measured_at = None
        self.isotropy.reference = {} if state.global_step else None
        if state.global_step == 0:
            self._log(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure after the last step, before trackers close and an older checkpoint is loaded."""
        if control.should_training_stop:
            self._log(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure once a step, for any number of data sets."""
        self._log(state)

    def _log(self, state: Any) -> None:
        if not state.is_world_process_zero or state.global_step == self._measured_at:
            return
        self._measured_at = state.global_step
        model: Any = self.trainer.model
        self.isotropy.model = model  # `model_init` replaces it
        self.trainer.log(self.isotropy())
