"""The life of isotropy layers inside a model that a Hugging Face Trainer trains."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback

from isotrain.model.distributed import all_gather
from isotrain.transforms.base import RowTransform


class FitLayersCallback(TrainerCallback):
    """Calls `observe` and `fit` of every isotropy layer in the Trainer's model, when they are due.

    `observe` once per optimizer step, with all rows that the layer saw in training since the last
    one (of all processes); `fit` before each evaluation, each checkpoint, and the end of training.
    An evaluation before the first step (`eval_on_start`) finds nothing fitted, and the layer says
    so: call `layer.fit(rows)` before training, or leave it out. Where gradient checkpointing
    computes a layer twice, its rows count twice.

    >>> from isotrain.transforms.zca import ZCA
    >>> [type(layer).__name__ for layer in isotropy_layers(nn.Sequential(nn.Linear(2, 2), ZCA(2)))]
    ['ZCA']
    """

    def __init__(self) -> None:
        self._rows: dict[RowTransform, list[dict[str, Tensor]]] = {}
        self._hooks: list[RemovableHandle] = []

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Look at what enters the layers."""
        self._look_away()
        layers = isotropy_layers(model)
        if not layers:
            raise ValueError(
                "FitLayersCallback found no isotropy layer in the Trainer's model; make one a "
                "submodule of it, or leave the callback out"
            )
        if args is not None and args.n_gpu > 1:
            raise ValueError(
                f"FitLayersCallback needs a process for each GPU, and one has {args.n_gpu}; "
                "start it with torchrun, or set CUDA_VISIBLE_DEVICES to one"
            )
        for layer in layers:
            _check(layer)
        self._rows = {layer: [] for layer in layers}
        self._hooks = [
            layer.register_forward_pre_hook(self._look, with_kwargs=True) for layer in self._rows
        ]

    @torch.no_grad()
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One optimizer step is made."""
        for layer, seen in self._rows.items():
            if seen:
                rows = {k: all_gather(torch.cat([one[k] for one in seen]))[0] for k in seen[0]}
                layer.observe(*rows.values())
                seen.clear()
        self._fit_if_due(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation or a checkpoint may come at the end of an epoch."""
        self._fit_if_due(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave nothing behind on the model."""
        self._look_away()

    def _look(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if layer.training and torch.is_grad_enabled():
            given = signature(layer.forward).bind(*args, **kwargs).arguments
            # in the order of the layer's own arguments, which is that of `observe`
            rows = {name: x.detach() for name, x in given.items() if x is not None}
            self._rows[layer].append(rows)

    def _fit_if_due(self, control: Any) -> None:
        if control.should_evaluate or control.should_save or control.should_training_stop:
            for layer in self._rows:
                layer.fit()

    def _look_away(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._rows = [], {}


def _check(layer: RowTransform) -> None:
    name = type(layer).__name__
    if layer.eval_stats == "refit":
        raise ValueError(
            f"{name} has eval_stats='refit', which needs a pass over all training rows that this "
            "callback does not make; use eval_stats='frozen'"
        )
    if layer.stats == "start" and layer.needs_fit():
        raise ValueError(
            f"{name} has stats='start', one map that is fitted before training; call "
            "layer.fit(rows) with rows of the training data first"
        )


def isotropy_layers(model: nn.Module) -> list[RowTransform]:
    """The isotropy layers of a model that have statistics to fit."""
    layers = [part for part in model.modules() if isinstance(part, RowTransform)]
    return [layer for layer in layers if layer.has_statistics]
