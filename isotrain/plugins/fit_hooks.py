"""Isotropy layers inside a LightningModule, as hooks of a callback of either Lightning package."""

from typing import Any

from isotrain.model.layer_inputs import LayerInputs, isotropy_layers
from isotrain.transforms.base import RowTransform


class FitHooks:
    """Call `observe` and `fit` of every isotropy layer in the LightningModule.

    `observe` is called once per optimizer step, with the layer inputs of all its micro-batches and
    processes. `fit` is called before each validation and at the end of training. It is also called
    when `state_dict` is read, so every checkpoint has the statistics of its weights. Lightning's
    sanity check comes before the first fit, and uses batch statistics.

    Raises:
        ValueError: a layer with `stats="start"` or `eval_stats="refit"`, which need a pass over the
            training set; a layer that is not used in training; a validation before the first
            optimizer step; a module of isotrain's, which fits its layers itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self._inputs: LayerInputs | None = None
        self._saving: Any = None  # handle of the hook of `state_dict`
        self._step = 0  # optimizer steps observed
        self._is_stale = False  # observed since the last fit
        self._evaluation: dict[RowTransform, Any] = {}  # `eval_stats` during the sanity check

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start to record the inputs of the layers."""
        if getattr(pl_module, "fits_layers", False):
            raise ValueError(
                f"{type(pl_module).__name__} fits its isotropy layers itself; leave FitLayers out"
            )
        if not isotropy_layers(pl_module):
            raise ValueError(
                f"FitLayers finds no isotropy layer with statistics in {type(pl_module).__name__}; "
                "leave it out, or make the layer an attribute of the module"
            )
        self._close()
        self._inputs = LayerInputs(pl_module)
        self._saving = pl_module.register_state_dict_pre_hook(lambda *_: self._fit())

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count the optimizer steps from the first one, or from those of a checkpoint."""
        self._step = trainer.global_step

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
            self._is_stale = True

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Freeze the statistics; those of a module that is only validated are frozen already."""
        self._fit()
        layers = [] if trainer.sanity_checking else isotropy_layers(pl_module)
        for layer in layers:
            if layer.eval_stats != "batch" and not bool(getattr(layer, "is_fitted", True)):
                raise ValueError(
                    f"{type(layer).__name__} has no statistics before the first optimizer step; "
                    "validate after it, or call layer.fit(x) before"
                )

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Freeze the last statistics, and remove the hooks."""
        self._fit()
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Remove the hooks."""
        self.on_sanity_check_end(trainer, pl_module)
        self._close()

    def _fit(self) -> None:
        if self._inputs is not None and self._is_stale:
            self._is_stale = False
            self._inputs.fit()

    def _close(self) -> None:
        if self._inputs is not None:
            self._inputs.remove()
            self._saving.remove()
        self._inputs, self._is_stale = None, False
