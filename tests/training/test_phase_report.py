"""What a run says of its phases is what its optimizer does."""

from __future__ import annotations

import pytest
import torch

from isotrain.encoders.freezing import levels
from isotrain.training.freezing_schedule import describe
from isotrain.training.optim import parameter_groups

STEPS = ("freezing=gradual", "freezing.unit=step")


def of_level(module, *wanted):
    """Names in the whole module of what stands at certain levels of the encoder."""
    level = levels(module.model.encoder)
    return {f"model.encoder.{name}" for name, k in level.items() if k in wanted}


def test_the_report_is_what_the_optimizer_does(built):
    experiment = built(
        "task=rte", "metric=[]", *STEPS, "training.layer_decay=0.5", "training.head_lr_factor=4"
    )
    module = experiment.module
    phases = describe(experiment.plan, module, module.model.encoder, module.new_optimizer())
    assert [phase["from_step"] for phase in phases] == [0, 1, 2]
    sizes = {n: p.numel() for n, p in module.named_parameters()}
    for number, phase in enumerate(phases):
        trained = {n for n in sizes if n.startswith("model.head.")}
        trained |= of_level(module, *range(2 - number, 4))
        assert phase["n_parameters"] == sum(sizes[n] for n in trained)
        rates = {part: g["lr"] for g in phase["groups"] for part in g["parts"]}
        all_rates = {"embeddings": 2.5e-4, "block 1": 5e-4, "block 2": 1e-3, "head": 4e-3}
        shown = list(all_rates)[2 - number :]
        assert rates == pytest.approx({part: all_rates[part] for part in shown})
        assert list(rates) == shown
        assert {g["weight_decay"] for g in phase["groups"]} == {0.0, 0.01}


def test_layers_and_objectives_with_weights_are_named(built):
    experiment = built("task=rte", "metric=[]", "isotropy=batch_norm")
    module = experiment.module
    module.extra.parts["x"] = torch.nn.Linear(2, 2)
    (phase,) = describe(experiment.plan, module, module.model.encoder, module.new_optimizer())
    parts = [part for group in phase["groups"] for part in group["parts"]]
    of_run = {"head", "isotropy layers", "objectives"}
    assert set(parts) == {"embeddings", "block 1", "block 2"} | of_run
    groups = parameter_groups(module, module.model.encoder)
    assert sum(len(g["params"]) for g in groups if g["is_head"]) == 2 + 2 + 2
