"""The cosine regulariser against a double loop."""

import pytest
import torch

from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.objectives.cosreg import CosReg, cosreg


def cloud(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) + 0.5


@pytest.mark.parametrize(("n", "d"), [(2, 3), (7, 2), (15, 30)])
def test_equals_the_double_loop(n, d):
    x = cloud(n, d, seed=n)
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                total += float(torch.nn.functional.cosine_similarity(x[i], x[j], dim=0))
    assert cosreg(x).item() == pytest.approx(total / n**2, abs=1e-12)
    assert cosreg(x).item() == pytest.approx(mean_cosine(x).item() * (n - 1) / n, abs=1e-12)


def test_one_row_gives_zero_with_a_zero_gradient():
    x = cloud(1, 5).requires_grad_()
    loss = cosreg(x)
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-15)
    assert x.grad.abs().max().item() < 1e-15


@pytest.mark.parametrize("shape", [(0, 4), (4,), (2, 3, 4), (3, 0)])
def test_what_is_no_cloud_is_refused(shape):
    with pytest.raises(ValueError, match=r"shape \[N, D\]|at least 1 rows|one dimension"):
        cosreg(torch.zeros(shape))


def test_ends_of_the_range():
    assert cosreg(torch.ones(4, 3)).item() == pytest.approx(0.75, abs=1e-6)
    assert cosreg(torch.eye(4) - 0.25).item() == pytest.approx(-0.25, abs=1e-6)


def test_gradcheck_and_a_step_spreads_the_rows():
    x = cloud(6, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(cosreg, x)
    loss = cosreg(x)
    loss.backward()
    assert cosreg((x - 0.1 * x.grad).detach()).item() < loss.item()


def test_objective_takes_every_vector_of_view_zero_at_each_place():
    objective = CosReg(weight=0.3)
    pooled, tokens = cloud(6, 4, seed=3).reshape(3, 2, 4), cloud(9, 4, seed=5)
    other = cloud(6, 4, seed=4).reshape(3, 2, 4)
    found = objective([[pooled], [other]], torch.zeros(3))
    assert (objective.weight, objective.n_views, objective.reads) == (0.3, 1, ("pooled",))
    assert found.item() == pytest.approx(cosreg(pooled.reshape(6, 4)).item(), abs=1e-12)
    both = objective([[pooled, tokens]], torch.zeros(3))
    expected = (cosreg(pooled.reshape(6, 4)) + cosreg(tokens)) / 2
    assert both.item() == pytest.approx(expected.item(), abs=1e-12)


def test_one_row_counts_as_undefined():
    objective = CosReg(weight=1.0, reads=("pooled", "layer_1/tokens"))
    one, several = cloud(1, 4)[None].requires_grad_(), cloud(5, 4, seed=6)
    found = objective([[one, several]], torch.zeros(1))
    assert found.item() == pytest.approx(cosreg(several).item() / 2, abs=1e-12)
    assert objective.counters["undefined"].item() == 1.0
    found.backward()
    assert one.grad.abs().max().item() == 0.0
    objective([[several]], torch.zeros(1))
    assert objective.counters["undefined"].item() == 0.0
