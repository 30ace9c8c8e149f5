"""Unit rows and mean pairwise cosine against loops."""

import pytest
import torch

from isotrain.geometry.cosine import mean_pairwise_cosine, unit_rows


def cloud(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_unit_rows_have_length_one_at_any_scale(scale):
    x = cloud(20, 5)
    torch.testing.assert_close(unit_rows(x * scale), x / x.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_unit_rows_keep_the_dtype(dtype):
    assert unit_rows(cloud(3, 4).to(dtype)).dtype == dtype


def test_float16_lengths_do_not_overflow():
    unit = unit_rows(torch.full((2, 64), 60_000.0, dtype=torch.float16))
    torch.testing.assert_close(unit, torch.full((2, 64), 0.125, dtype=torch.float16))


def test_a_zero_row_stays_zero_with_a_finite_gradient():
    x = cloud(4, 3)
    x[1] = 0.0
    x.requires_grad_()
    unit = unit_rows(x)
    assert not bool(unit[1].any())
    mean_pairwise_cosine(x).backward()
    assert bool(torch.isfinite(x.grad).all())


def test_mean_pairwise_cosine_is_the_double_loop_and_differentiable():
    rows = cloud(7, 3, seed=1)
    x = rows.clone().requires_grad_()
    total = sum(
        float(torch.nn.functional.cosine_similarity(rows[i], rows[j], dim=0))
        for i in range(7)
        for j in range(7)
        if i != j
    )
    assert mean_pairwise_cosine(x).item() == pytest.approx(total / 42, abs=1e-12)
    assert torch.autograd.gradcheck(mean_pairwise_cosine, x)
