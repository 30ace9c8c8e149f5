"""Isotropy layers inside a model that a Hugging Face Trainer trains."""

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback

from isotrain.model.distributed import all_gather
from isotrain.transforms.base import RowTransform


@dataclass
class _Pass:
    """A forward pass of a layer in training: its arguments by name."""

    inputs: dict[str, Tensor]
    has_gradient: bool  # false: a reentrant checkpoint may still compute it again with one


class FitLayersCallback(TrainerCallback):
    """Calls `observe` and `fit` of every isotropy layer in the Trainer's model.

    `observe` once per optimizer step, with the inputs of the layer since the last one, of all
    processes; `fit` before each evaluation, each checkpoint, and the end of training. With
    `eval_on_start`, call `layer.fit(x)` before training. A forward pass counts once, if it has a
    gradient; under reentrant checkpointing it gets that when backward computes it again.

    >>> from isotrain.transforms.zca import ZCA
    >>> [type(layer).__name__ for layer in isotropy_layers(nn.Sequential(nn.Linear(2, 2), ZCA(2)))]
    ['ZCA']
    """

    def __init__(self) -> None:
        self._passes: dict[RowTransform, list[_Pass]] = {}  # since the last step
        self._hooks: list[RemovableHandle] = []

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Start to record the inputs of the layers."""
        self._remove_hooks()
        layers = isotropy_layers(model)
        if args is not None and args.n_gpu > 1:
            raise ValueError(
                f"FitLayersCallback needs a process for each GPU, and one has {args.n_gpu}; "
                "start it with torchrun, or set CUDA_VISIBLE_DEVICES to one"
            )
        if unfit := [
            layer for layer in layers if layer.eval_stats == "refit" and layer.needs_fit()
        ]:
            raise ValueError(
                f"{type(unfit[0]).__name__} has eval_stats='refit', which needs a pass over all "
                "training examples that this callback does not make; use eval_stats='frozen'"
            )
        self._passes = {layer: [] for layer in layers}
        self._hooks = [
            layer.register_forward_pre_hook(self._record, with_kwargs=True) for layer in layers
        ]

    @torch.no_grad()
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Observe the inputs of the step."""
        for layer, passes in self._passes.items():
            inputs = [one.inputs for one in passes if one.has_gradient]
            passes.clear()
            if inputs:
                names = inputs[0]
                layer.observe(*(all_gather(torch.cat([x[k] for x in inputs])) for k in names))
        self._fit_if_due(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation or a checkpoint may come at the end of an epoch."""
        self._fit_if_due(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remove the hooks."""
        self._remove_hooks()

    def _record(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not layer.training:
            return
        arguments = signature(layer.forward).bind(*args, **kwargs).arguments  # as of `observe`
        inputs = {name: x.detach() for name, x in arguments.items() if x is not None}
        passes, has_gradient = self._passes[layer], torch.is_grad_enabled()
        if not _in_backward():
            passes.append(_Pass(inputs, has_gradient))
        elif has_gradient:  # the recomputation of a pass; of the latest one, as backward goes back
            shapes = [x.shape for x in inputs.values()]
            for one in reversed(passes):
                if not one.has_gradient and [x.shape for x in one.inputs.values()] == shapes:
                    one.has_gradient = True
                    break

    def _fit_if_due(self, control: Any) -> None:
        if control.should_evaluate or control.should_save or control.should_training_stop:
            for layer in self._passes:
                layer.fit()

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._passes = [], {}


def _in_backward() -> bool:
    """Whether this thread runs a backward pass, where checkpoints compute again."""
    return torch._C._current_graph_task_id() != -1


def isotropy_layers(model: nn.Module) -> list[RowTransform]:
    """The isotropy layers of a model that have statistics to fit."""
    layers = [part for part in model.modules() if isinstance(part, RowTransform)]
    return [layer for layer in layers if layer.has_statistics]
