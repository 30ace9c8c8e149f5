"""Isotropy layers inside any model: record their inputs, observe them once per optimizer step, fit.

N embeddings, D width.
"""

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from isotrain.model.distributed import all_gather
from isotrain.transforms.base import RowTransform


@dataclass
class _Pass:
    """A forward pass of a layer in training: its arguments by name."""

    inputs: dict[str, Tensor]
    has_gradient: bool  # false: a reentrant checkpoint may still compute it again with one


class LayerInputs:
    """Record the inputs of a model's isotropy layers in training, by hooks.

    A forward pass counts once, if it has a gradient; under reentrant checkpointing it gets that
    when backward computes it again.

    Raises:
        ValueError: a layer that needs a pass over the training set before it can be used.

    >>> from isotrain.transforms.zca import ZCA
    >>> model = nn.Sequential(nn.Linear(2, 2), ZCA(2))
    >>> inputs = LayerInputs(model)
    >>> _ = model(torch.eye(2))
    >>> inputs.observe()
    >>> inputs.fit()
    >>> model.eval()(torch.eye(2)).shape
    torch.Size([2, 2])
    """

    def __init__(self, model: nn.Module) -> None:
        layers = isotropy_layers(model)
        for layer in layers:
            reads_all = layer.stats == "start" or layer.eval_stats == "refit"
            if reads_all and layer.needs_fit():
                key = "stats='start'" if layer.stats == "start" else "eval_stats='refit'"
                raise ValueError(
                    f"{type(layer).__name__} has {key}, which needs a pass over the training set "
                    "that no callback makes; use stats='queue' and eval_stats='frozen'"
                    + (", or call layer.fit(x) before training" if "start" in key else "")
                )
        self._passes: dict[RowTransform, list[_Pass]] = {layer: [] for layer in layers}
        self._n_steps = 0
        self._hooks = [
            layer.register_forward_pre_hook(self._record, with_kwargs=True) for layer in layers
        ]

    @torch.no_grad()
    def observe(self) -> None:
        """Give each layer its inputs since the last call, of all processes.

        Raises:
            ValueError: no layer was seen in the first step: none ran, or they run compiled.
        """
        self._n_steps += 1
        if self._n_steps == 1 and self._passes and not any(self._passes.values()):
            raise ValueError(
                f"{type(next(iter(self._passes))).__name__} was not seen in a training step: use "
                "it in training_step, and leave it uncompiled if its hooks do not run there"
            )
        for layer, passes in self._passes.items():
            inputs = [call.inputs for call in passes if call.has_gradient]
            passes.clear()
            if inputs:
                names = inputs[0]
                layer.observe(*(all_gather(torch.cat([x[k] for x in inputs])) for k in names))

    def fit(self) -> None:
        """Freeze the statistics of each layer for evaluation."""
        for layer in self._passes:
            layer.fit()

    def remove(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._passes = [], {}

    @_disable_dynamo
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
            for call in reversed(passes):
                if not call.has_gradient and [x.shape for x in call.inputs.values()] == shapes:
                    call.has_gradient = True
                    break


def _in_backward() -> bool:
    """Whether this thread runs a backward pass, where checkpoints compute again."""
    return torch._C._current_graph_task_id() != -1


def isotropy_layers(model: nn.Module) -> list[RowTransform]:
    """The isotropy layers of a model that have statistics to fit, or a queue.

    >>> from isotrain.transforms.zca import ZCA
    >>> [type(layer).__name__ for layer in isotropy_layers(nn.Sequential(nn.Linear(2, 2), ZCA(2)))]
    ['ZCA']
    """
    layers = [part for part in model.modules() if isinstance(part, RowTransform)]
    return [layer for layer in layers if layer.has_statistics or layer.remembers]
