"""α-ReQ on exact power laws and against NumPy's line."""

import numpy as np
import pytest
import torch

from isotrain.metrics.alpha_req import alpha_req


def power_law(alpha, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    axes, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    half = torch.arange(1.0, d + 1.0, dtype=torch.float64)[:, None] ** (-alpha / 2) * axes
    return torch.cat([half, -half]) * 3.0 + mean


def cloud(n, d, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 3.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.5])
@pytest.mark.parametrize(("first", "last"), [(11, 50), (1, 2), (1, 60), (20, 40), (59, 60)])
def test_exact_power_law(alpha, first, last):
    found = alpha_req(power_law(alpha, 60, mean=2.0), first=first, last=last)
    assert found.dtype == torch.float64
    assert found.ndim == 0
    # 59 to 60: the line spans 1/60, and so multiplies rounding by 60.
    assert found.item() == pytest.approx(alpha, abs=1e-9)


@pytest.mark.parametrize("d", [3, 4, 8, 12, 30])
def test_small_clouds_have_a_window_too(d):
    assert alpha_req(power_law(1.5, d)).item() == pytest.approx(1.5, abs=1e-10)


def line(value, first, last):
    number = np.arange(first, last + 1)
    return -np.polyfit(np.log(number), np.log(value[first - 1 : last]), 1)[0]


@pytest.mark.parametrize(
    ("n", "d", "first", "last"),
    [(200, 80, 11, 50), (41, 80, 11, 40), (10, 80, 4, 9), (21, 300, 10, 20), (200, 25, 11, 25)],
)
def test_window_and_line_of_a_noisy_spectrum(n, d, first, last):
    """The window ends at min(50, rank) and starts at most at half of its end."""
    x = cloud(n, d, mean=1.0)
    points = x.numpy() - x.numpy().mean(axis=0)
    value = np.linalg.svd(points, compute_uv=False) ** 2
    assert alpha_req(x).item() == pytest.approx(line(value, first, last), rel=1e-9)


def test_about_the_origin():
    x = cloud(200, 20, seed=1, mean=3.0)
    value = np.linalg.svd(x.numpy(), compute_uv=False) ** 2
    found = alpha_req(x, first=1, last=20, center=False).item()
    assert found == pytest.approx(line(value, 1, 20), rel=1e-9)
    assert abs(found - alpha_req(x, first=1, last=20).item()) > 0.1


def test_only_eigenvalues_that_are_not_zero_are_counted():
    x = torch.nn.functional.pad(power_law(2.0, 6), (0, 30))
    assert alpha_req(x).item() == pytest.approx(2.0, abs=1e-10)


def test_noise_of_many_rows_is_flat_and_of_few_rows_is_not():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(20_000, 60, generator=generator)
    assert 0.0 <= alpha_req(x).item() < 0.1
    assert alpha_req(x[:120]).item() > 0.5


@pytest.mark.parametrize(("first", "last"), [(0, 5), (-1, 5), (5, 5), (6, 5)])
def test_empty_windows_are_refused(first, last):
    with pytest.raises(ValueError, match=f"got {first} to {last}"):
        alpha_req(cloud(30, 10), first=first, last=last)


@pytest.mark.parametrize(
    ("x", "rank"),
    [
        (cloud(3, 9), 2),
        (cloud(30, 2), 2),
        (cloud(2, 9), 1),
        (torch.full((9, 4), -16_000.3, dtype=torch.float64), 0),
        (cloud(3, 9).repeat(4, 1), 2),
    ],
    ids=["N=3", "D=2", "N=2", "constant", "duplicates"],
)
def test_a_line_needs_three_points(x, rank):
    with pytest.raises(ValueError, match=f"at least 3 eigenvalues.*got {rank}; measure more"):
        alpha_req(x)


def test_the_window_is_the_one_that_was_asked_for():
    noise = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value = torch.sort(noise * 10.0 ** -torch.linspace(0, 3, 100), descending=True).values
    x = torch.diag(value.sqrt())
    x = torch.cat([x, -x])
    log_i, log_v = torch.arange(40, 51).double().log(), value[39:50].log()
    slope = np.polyfit(log_i.numpy(), log_v.numpy(), 1)[0]
    assert alpha_req(x, first=40, last=50).item() == pytest.approx(-slope, rel=1e-9)
    assert alpha_req(x, first=11, last=50).item() != pytest.approx(-slope, rel=1e-2)
