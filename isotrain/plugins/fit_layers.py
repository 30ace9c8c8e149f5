"""Isotropy layers inside a model that a Hugging Face Trainer trains."""

from typing import Any

from transformers import TrainerCallback

from isotrain.model.layer_inputs import LayerInputs


class FitLayersCallback(TrainerCallback):
    """Calls `observe` and `fit` of every isotropy layer in the Trainer's model.

    `observe` is called once per optimizer step, with the step's layer inputs of all processes.
    `fit` is called before each evaluation, each checkpoint, and the end of training. With
    `eval_on_start`, call `layer.fit(x)` before training.

    Raises:
        ValueError: as `LayerInputs`, or a process with several GPUs.
    """

    def __init__(self) -> None:
        self._inputs: LayerInputs | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Start to record the inputs of the layers."""
        if args is not None and args.n_gpu > 1:
            raise ValueError(
                f"FitLayersCallback needs a process for each GPU, and one has {args.n_gpu}; "
                "start it with torchrun, or set CUDA_VISIBLE_DEVICES to one"
            )
        self.on_train_end(args, state, control)
        self._inputs = LayerInputs(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Observe the inputs of the step."""
        assert self._inputs is not None
        self._inputs.observe()
        self.on_epoch_end(args, state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Fit before an evaluation or a checkpoint, which may also come at the end of an epoch."""
        assert self._inputs is not None
        if control.should_evaluate or control.should_save or control.should_training_stop:
            self._inputs.fit()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remove the hooks."""
        if self._inputs is not None:
            self._inputs.remove()
