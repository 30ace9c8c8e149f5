"""Cutting, whitening, and their pitfalls: fitting on what is measured, signs of directions."""

import torch

from isotrain.analysis.outliers import pair_cosines, treatments
from isotrain.metrics.mean_cosine import mean_cosine


def rows(n, d=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    x = (
        x @ torch.randn(d, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
        + 2.0
    )
    x[:, 4] += 80.0
    return x


def test_none_leaves_rows_and_cut_zeroes_its_dimensions_alone():
    x = rows(30)
    maps = treatments(rows(200, seed=1), [4, 0], 0.0)
    assert torch.equal(maps["none"](x), x)
    cut = maps["cut"](x)
    assert cut[:, [4, 0]].abs().max() == 0.0
    kept = [i for i in range(12) if i not in (4, 0)]
    assert torch.equal(cut[:, kept], x[:, kept])
    assert mean_cosine(x) > 0.9
    assert mean_cosine(cut) < 0.7


def test_a_direction_that_a_norm_leaves_empty_stays_empty():
    generator = torch.Generator().manual_seed(0)
    norm = torch.nn.functional.layer_norm
    fit, x = (norm(torch.randn(n, 16, generator=generator), (16,)) for n in (90, 40))
    empty = torch.full((16,), 0.25, dtype=torch.float64)  # norms of rows sum to 0
    assert (fit.double() @ empty).abs().max() < 1e-6
    y = treatments(fit, [], 1e-6)["whitened"](x)
    spread = y.square().mean(dim=0)
    assert spread[-1] < 1e-3
    assert spread[:-1].min() > 0.3


def test_pair_cosines_against_torch_and_of_a_zero_row():
    u, v = rows(9, seed=2), rows(9, seed=3)
    expected = torch.nn.functional.cosine_similarity(u, v)
    assert torch.allclose(pair_cosines(u, v), expected)
    assert pair_cosines(torch.zeros(1, 3), torch.ones(1, 3)).item() == 0.0
