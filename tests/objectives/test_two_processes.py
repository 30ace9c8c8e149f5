"""Objectives on two processes have the loss, gradient and memory of one."""

from __future__ import annotations

import pytest
import torch

from isotrain.objectives.cosent import CoSENT
from isotrain.objectives.istar import IStar
from isotrain.objectives.simcse import SimCSE
from isotrain.objectives.supcon import SupCon
from isotrain.training.extra_losses import ExtraLosses
from isotrain.types import Batch, ModelOutput
from tests.processes import on_ranks

N, D = 7, 4  # dealt to two processes: 4 examples and 3
LABELS = torch.tensor([0, 1, 1, 2, 0, 2, 1])
SHARED = {"projection": "mlp", "memory_rows": 10, "temperature": 0.3}
MAKE = {  # with the vectors of an example
    "memory": (lambda: SimCSE(1.0, D, symmetric=True, **SHARED), 2),
    "negatives": (lambda: SimCSE(1.0, D, positives="pair", hard_negative_weight=0.5, **SHARED), 4),
    "classes": (lambda: SupCon(1.0, D, n_views=2, **SHARED), 1),
    "scores": (lambda: CoSENT(1.0), 2),
    "queue": (lambda: IStar(1.0, D, n_blocks=1, reads=["pooled"], reference_rows=16), 2),
}


def trained(rank=0, n=1):
    """Loss, counters, gradients and state of each objective at its second step."""
    found = {}
    labels = LABELS[rank::n]
    nothing = torch.zeros(len(labels), 1, dtype=torch.int64)
    batch = Batch(nothing, nothing, nothing, nothing, labels, torch.arange(N)[rank::n])
    for name, (make, p) in MAKE.items():
        torch.manual_seed(3)  # equal weights in every process
        extra = ExtraLosses({name: make()}).double()
        for step in range(2):
            generator = torch.Generator().manual_seed(step)
            whole = torch.randn(2, N, p, D, generator=generator, dtype=torch.float64) + 0.3
            pooled = whole[:, rank::n].clone().requires_grad_()
            extra.zero_grad()
            views = [ModelOutput((), x_BPD, labels[:, None].double()) for x_BPD in pooled]
            loss, logged = extra(views, batch)
            loss.backward()
            extra.observe()
        found[name] = (
            pooled.grad,
            [loss.detach(), *(value.double() for value in logged.values())],
            [weight.grad for weight in extra.parameters()],
            dict(extra.state_dict()),
        )
    return found


def of_rank(rank):
    return trained(rank, 2)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return on_ranks(of_rank, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", MAKE)
def test_two_processes_are_one(name, ranks):
    whole, *expected = trained()[name]
    assert whole[0].norm() > 1e-3
    for rank, (own, *found) in enumerate(of_all[name] for of_all in ranks):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
        # A trainer averages gradients over processes; every process computed the whole loss.
        torch.testing.assert_close(own / 2, whole[:, rank::2], rtol=1e-9, atol=1e-11)
