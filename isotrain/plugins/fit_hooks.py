"""Isotropy layers inside a LightningModule, as hooks of a callback of either Lightning package."""

from typing import Any

from isotrain.model.layer_inputs import LayerInputs, isotropy_layers
from isotrain.transforms.base import RowTransform


class FitHooks:
    """Call `observe` and `fit` of every isotropy layer in the LightningModule.

    `observe` once per optimizer step, with the inputs of the layer since the last one, of all its
    micro-batches and processes; `fit` before each validation, in each checkpoint, and at the end of
    training. Lightning's sanity check, before there is anything to fit, uses batch statistics.

    Raises:
        ValueError: a layer with `stats="start"` or `eval_stats="refit"`, which need a pass over the
            training set; a layer that is not used in training, or was compiled before; a module of
            isotrain's, which fits its layers itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self._inputs: LayerInputs | None = None
        self._step = 0  # optimizer steps observed
        self._evaluation: dict[RowTransform, Any] = {}  # `eval_stats` during the sanity check

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start to record the inputs of the layers."""
        if getattr(pl_module, "fits_layers", False):
            raise ValueError(
                f"{type(pl_module).__name__} fits its isotropy layers itself; leave FitLayers out"
            )
        self._close()
        self._inputs, self._step = LayerInputs(pl_module), trainer.global_step

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Evaluate with batch statistics."""
        self._evaluation = {layer: layer.eval_stats for layer in isotropy_layers(pl_module)}
        for layer in self._evaluation:
            layer.eval_stats = "batch"

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """Return to frozen statistics."""
        for layer, eval_stats in self._evaluation.items():
            layer.eval_stats = eval_stats
        self._evaluation = {}

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Observe the inputs of an optimizer step, when it is complete."""
        if self._inputs is not None and trainer.global_step > self._step:
            self._step = trainer.global_step
            self._inputs.observe()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Freeze the statistics; those of a module that is only validated are frozen already."""
        if self._inputs is not None and not trainer.sanity_checking:
            self._inputs.fit()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Freeze the statistics, in the checkpoint too: it refers to the layers' buffers."""
        if self._inputs is not None and self._step:
            self._inputs.fit()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Freeze the last statistics, and remove the hooks."""
        if self._inputs is not None and self._step:
            self._inputs.fit()
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Remove the hooks."""
        self.on_sanity_check_end(trainer, pl_module)
        self._close()

    def _close(self) -> None:
        if self._inputs is not None:
            self._inputs.remove()
        self._inputs = None
