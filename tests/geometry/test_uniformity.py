"""The mean Gaussian potential against the loop over pairs, in blocks, sampled, and backwards."""

import math

import pytest
import torch

from isotrain.geometry import uniformity
from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.uniformity import log_mean_potential, sampled_log_mean_potential


def cloud(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return unit_rows(torch.randn(n, d, generator=generator, dtype=torch.float64) + 0.4)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def loop(x, t):
    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    total = math.fsum(math.exp(-t * float((x[i] - x[j]).square().sum())) for i, j in pairs)
    return math.log(total / len(pairs))


@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 3), (25, 6), (12, 40)])
@pytest.mark.parametrize("t", [0.5, 2.0])
def test_equals_the_loop(n, d, t):
    x = cloud(n, d, seed=n)
    assert log_mean_potential(x, t).item() == pytest.approx(loop(x, t), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("block", [1, 8 * 40 * 7, 8 * 40 * 39, 1 << 30])
def test_blocks_change_nothing_forwards_or_backwards(block, monkeypatch):
    x = cloud(40, 5, seed=1).requires_grad_()
    expected = log_mean_potential(x, 2.0)
    (gradient,) = torch.autograd.grad(expected, x)
    monkeypatch.setattr(uniformity, "BLOCK_BYTES", block)
    found = log_mean_potential(x, 2.0)
    assert found.item() == pytest.approx(expected.item(), rel=1e-13)
    torch.testing.assert_close(torch.autograd.grad(found, x)[0], gradient, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("block", [64, 1 << 25])
def test_the_gradient_is_right(block, monkeypatch):
    monkeypatch.setattr(uniformity, "BLOCK_BYTES", block)
    x = cloud(7, 3, seed=2)
    x[4] = x[1]  # a pair at distance zero
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: log_mean_potential(x, 2.0), x)
    assert torch.autograd.gradcheck(lambda x: sampled_log_mean_potential(x, 2.0, 50, draw())[0], x)


def test_one_step_down_spreads_the_rows():
    x = cloud(30, 4, seed=3).requires_grad_()
    before = log_mean_potential(x, 2.0)
    (gradient,) = torch.autograd.grad(before, x)
    assert log_mean_potential(unit_rows(x - 0.5 * gradient), 2.0) < before


def test_equal_rows_give_zero_with_a_zero_gradient():
    x = cloud(1, 6).repeat(9, 1).requires_grad_()
    value = log_mean_potential(x, 2.0)
    assert value.item() == pytest.approx(0.0, abs=1e-14)
    (gradient,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(gradient, torch.zeros_like(x), rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("t", [500.0, 1e5])
def test_sharp_potentials_do_not_underflow(t):
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    # Two pairs at squared distance 2 and one at 4, of three.
    expected = -2.0 * t + math.log(2.0 / 3.0)
    assert log_mean_potential(x, t).item() == pytest.approx(expected, rel=1e-12)
    found, _ = sampled_log_mean_potential(x, t, 20_000, draw())
    assert found.item() == pytest.approx(expected, abs=0.05)


def test_the_dtype_stays():
    x = cloud(20, 5, seed=4)
    for found in (
        log_mean_potential(x.float(), 2.0),
        *sampled_log_mean_potential(x.float(), 2.0, 100, draw()),
    ):
        assert (found.dtype, found.ndim) == (torch.float32, 0)
    assert log_mean_potential(x.float(), 2.0).item() == pytest.approx(loop(x, 2.0), abs=1e-5)


def test_every_pair_is_drawn_evenly_and_no_row_with_itself():
    # Potentials 1, e^-1, e^-4 of the three pairs, so the mean tells if one is drawn too often.
    x = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    value, error = sampled_log_mean_potential(x, 1.0, 200_000, draw(1))
    expected = math.log((2.0 * math.exp(-1.0) + math.exp(-4.0)) / 3.0)
    assert value.item() == pytest.approx(expected, abs=4.0 * error.item())
    assert error.item() < 0.003


def test_the_standard_error_is_the_spread_of_draws():
    x = cloud(80, 3, seed=5)
    exact = loop(x, 2.0)
    found = [sampled_log_mean_potential(x, 2.0, 400, draw(seed)) for seed in range(200)]
    value = torch.stack([f[0] for f in found])
    error = torch.stack([f[1] for f in found])
    assert value.std().item() == pytest.approx(error.mean().item(), rel=0.15)
    covered = ((value - exact).abs() < 1.96 * error).double().mean().item()
    assert 0.90 <= covered <= 0.99


@pytest.mark.parametrize("block", [1, 8 * 4 * 10, 8 * 4 * 332])
def test_sampled_blocks_change_nothing_forwards_or_backwards(block, monkeypatch):
    x = cloud(30, 4, seed=6).requires_grad_()
    expected = sampled_log_mean_potential(x, 2.0, 333, draw())
    (gradient,) = torch.autograd.grad(expected[0], x)
    monkeypatch.setattr(uniformity, "BLOCK_BYTES", block)
    found = sampled_log_mean_potential(x, 2.0, 333, draw())
    for one, other in zip(found, expected, strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-13)
    again = torch.autograd.grad(found[0], x)[0]
    torch.testing.assert_close(again, gradient, rtol=1e-11, atol=1e-15)


def test_a_gradient_keeps_numbers_of_pairs_and_no_rows_of_them():
    d, n_pairs = 64, 5000
    x, kept = cloud(100, d).requires_grad_(), []

    def keep(saved):
        kept.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        value, _ = sampled_log_mean_potential(x, 2.0, n_pairs, draw())
    assert max(kept) <= 2 * n_pairs
    assert sum(kept) <= x.numel() + 12 * n_pairs
    assert value.requires_grad
