"""Affine maps found by trying a function, and functions that are none."""

import pytest
import torch

from isotrain.export.folding import Affine, NotAffineError, affine_of, identity


@pytest.fixture
def rows():
    return torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_an_affine_map_is_found(rows):
    matrix = torch.arange(15.0, dtype=torch.float64).reshape(5, 3)
    found = affine_of(lambda x: x @ matrix - 7.0, rows, "it")
    torch.testing.assert_close(found.matrix_DE, matrix, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.bias_E, torch.full((3,), -7.0, dtype=torch.float64))


def test_one_map_after_another_is_one_map(rows):
    generator = torch.Generator().manual_seed(1)
    first, second = (
        Affine(
            torch.randn(5, 5, dtype=torch.float64, generator=generator),
            torch.randn(5, dtype=torch.float64, generator=generator),
        )
        for _ in range(2)
    )
    torch.testing.assert_close(first.then(second)(rows), second(first(rows)))
    torch.testing.assert_close(identity(5).then(first)(rows), first(rows))


def test_rows_in_other_pieces_of_a_map_are_counted(rows):
    def bent(x):  # affine but where the first coordinate is above 1
        return torch.where(x[:, :1] > 1.0, 2 * x, x)

    n_off = int((rows[:, 0] > 1.0).sum())
    assert 0 < n_off < 40
    with pytest.raises(NotAffineError, match=rf"bent is no affine map: {n_off} of 40 embeddings"):
        affine_of(bent, rows, "bent")


def test_a_bound_that_no_row_reaches_is_seen(rows):
    bound = 2 * float(rows.abs().max())
    with pytest.raises(
        NotAffineError, match=r"40 of 40 embeddings of this run, 1,000 times as far"
    ):
        affine_of(lambda x: x.clamp(-bound, bound), rows, "it")
