"""Freeze the statistics of isotropy layers before an evaluation. N embeddings of a site."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from isotrain.encoders.trial import in_evaluation
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.training.monitor.sampling import Reservoir
from isotrain.types import Batch, ModelOutput

Passes = Callable[[int | None], Iterable[tuple[Batch, ModelOutput]]]
"""The model on the first n training batches, in its current mode; None = on all of them."""


@torch.no_grad()
def fit_layers(
    model: IsotropicModel, passes: Passes, n_batches: int, refit_rows: int, prefill: bool
) -> None:
    """Freeze the layers' statistics, in the order of the forward pass.

    The first site is fitted on its queue, which `n_batches` training batches fill if `prefill`.
    The input of a later site depends on the frozen layers below it, so it is collected again from
    as many batches. A layer with `eval_stats="refit"` is fitted on embeddings of all training
    batches, at most `refit_rows`, sampled by hash.
    """
    layers = model.transforms
    unfitted_layers = [layer for layer in layers.values() if layer.needs_fit()]  # type: ignore[operator]
    if not unfitted_layers:
        return
    with in_evaluation(model):
        layers.train()  # batch statistics: none are frozen yet
        if prefill:
            for _, output in passes(n_batches):
                layers.eval()  # not a training step
                model.remember(output)
                model.observe()
                layers.train()
        for number, site in enumerate(model.sites):
            layer = layers[site]
            if layer not in unfitted_layers:
                layer.eval()
                continue
            if layer.eval_stats == "refit":
                _fit(layer, *_sampled(passes(None), site, refit_rows))
            elif number > 0:
                parts = [output.site_embeddings[site] for _, output in passes(n_batches)]
                before_ND = torch.cat([part.before for part in parts])
                _fit(layer, before_ND, torch.cat([part.labels for part in parts]))
            else:
                layer.fit()  # type: ignore[operator]
            layer.eval()


def _sampled(
    passes: Iterable[tuple[Batch, ModelOutput]], site: str, most: int
) -> tuple[Tensor, Tensor]:
    reservoir = Reservoir(most)
    for _, output in passes:
        rows = output.site_embeddings[site]
        reservoir.add(rows.ids, [rows.before], [rows.labels])
    return reservoir.cloud(0).to(rows.before.device), reservoir.fact(0).to(rows.labels.device)


def _fit(layer: nn.Module, x_ND: Tensor, labels_N: Tensor) -> None:
    layer.fit(x_ND, *([labels_N] if layer.reads_labels else []))  # type: ignore[operator]
