"""Contrastive objectives over two processes have the loss and gradient of one."""

from __future__ import annotations

import pytest
import torch

from isotrain.objectives.angle import AnglE
from isotrain.objectives.cosent import CoSENT
from isotrain.objectives.dcl import DCL
from isotrain.objectives.simcse import SimCSE
from isotrain.objectives.supcon import SupCon
from isotrain.training.extra_losses import ExtraLosses
from isotrain.types import Batch, ModelOutput
from tests.processes import on_ranks

N, D = 7, 4  # dealt to two processes: 4 examples and 3
LABELS = torch.tensor([0, 1, 1, 2, 0, 2, 1])


def objectives():
    """By name, with the vectors an example that each needs."""
    torch.manual_seed(3)  # equal weights in every process
    shared = {"projection": "mlp", "memory_rows": 10, "temperature": 0.3}
    return {
        "simcse": (SimCSE(1.0, D, symmetric=True, **shared), 2),
        "hard": (SimCSE(1.0, D, positives="pair", hard_negative_weight=0.5, **shared), 4),
        "dcl": (DCL(1.0, D, **shared), 1),
        "supcon": (SupCon(1.0, D, n_views=2, **shared), 1),
        "cosent": (CoSENT(1.0), 2),
        "angle": (AnglE(1.0, D), 2),
    }


def pooled_of(p, view, step):
    generator = torch.Generator().manual_seed(10 * step + view)
    return torch.randn(N, p, D, generator=generator, dtype=torch.float64) + 0.3


def computed(rank=0, n=1):
    """Loss, gradients, counters and memory of each objective at its second step."""
    found = {}
    labels = LABELS[rank::n]
    nothing = torch.zeros(len(labels), 1, dtype=torch.int64)
    batch = Batch(nothing, nothing, nothing, nothing, labels, torch.arange(N)[rank::n])
    for name, (objective, p) in objectives().items():
        extra = ExtraLosses({name: objective}).double()
        for step in range(2):
            leaves = [pooled_of(p, v, step)[rank::n].requires_grad_() for v in range(2)]
            extra.zero_grad()
            views = [ModelOutput((), leaf, labels[:, None].double()) for leaf in leaves]
            loss, logged = extra(views, batch)
            loss.backward()
            extra.observe()
        found[name] = {
            "loss": loss.detach(),
            "logged": {key: value.double() for key, value in logged.items()},
            "pooled": [leaf.grad for leaf in leaves if leaf.grad is not None],
            "weights": [weight.grad for weight in extra.parameters()],
            "state": dict(extra.state_dict()),
        }
    return found


def of_rank(rank):
    return computed(rank, 2)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return on_ranks(of_rank, 2, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def alone():
    return computed()


close = {"rtol": 1e-9, "atol": 1e-11}


@pytest.mark.parametrize("name", list(objectives()))
def test_two_processes_have_the_gradient_of_one(name, ranks, alone):
    one = alone[name]
    assert one["pooled"]
    assert all(grad.abs().max() > 0 for grad in one["pooled"] + one["weights"])
    for rank, found in enumerate(several[name] for several in ranks):
        torch.testing.assert_close(found["loss"], one["loss"], **close)
        torch.testing.assert_close(found["logged"], one["logged"], **close)
        # A trainer averages gradients over processes; every process computed the whole loss.
        whole = [grad[rank::2] for grad in one["pooled"]]
        torch.testing.assert_close([grad / 2 for grad in found["pooled"]], whole, **close)
        torch.testing.assert_close(found["weights"], one["weights"], **close)


@pytest.mark.parametrize("name", ["simcse", "hard", "dcl", "supcon"])
def test_two_processes_remember_what_one_does(name, ranks, alone):
    assert alone[name]["state"][f"parts.{name}.memory._extra_state"][0] == 10
    for found in ranks:
        torch.testing.assert_close(found[name]["state"], alone[name]["state"], **close)
