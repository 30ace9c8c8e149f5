"""Linear heads written into heads that are not linear."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from isotrain.export.affine import Affine, NotAffineError
from isotrain.export.classifier import (
    head_for,
    put_behind_relu,
    put_behind_tanh,
    put_without_bias,
)

D, C = 64, 3


@pytest.fixture
def affine():
    """Of float32 numbers, so that nothing is lost when they are written."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(D, C, generator=generator)
    return Affine(matrix.double(), torch.tensor([100.0, -3.0, 0.0]).double())


@pytest.fixture
def norm():
    norm = nn.LayerNorm(D)
    torch.manual_seed(1)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def extreme_states(affine, norm):
    """States that give the largest logits the norm allows, and ordinary ones."""
    gain, offset = norm.weight.detach().double(), norm.bias.detach().double()
    towards = (affine.matrix_DE * gain[:, None]).T
    sign = affine(offset[None])[0].sign()
    unit = sign[:, None] * towards / towards.norm(dim=1, keepdim=True)
    free = torch.randn(50, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    free = free / free.norm(dim=1, keepdim=True)
    return math.sqrt(D) * torch.cat([unit, free]) * gain + offset


def test_behind_tanh_no_state_is_off_by_more_than_five_billionths(affine, norm):
    dense, out = nn.Linear(D, D), nn.Linear(D, C)
    put_behind_tanh(dense, out, affine, norm)
    states = extreme_states(affine, norm)
    expected = affine(states)
    assert expected.abs().max() > 100
    dense.double(), out.double()
    found = out(torch.tanh(dense(states)))
    off = (found - expected).abs() / expected.abs().max()
    assert off.max() < 2.0**-26 / 3
    assert off.max() > 1e-10  # it is truncation that is bounded, not nothing


def test_behind_tanh_float32_gives_what_a_linear_head_gives(affine, norm):
    dense, out, linear = nn.Linear(D, D), nn.Linear(D, C), nn.Linear(D, C)
    put_behind_tanh(dense, out, affine, norm)
    with torch.no_grad():
        linear.weight.copy_(affine.matrix_DE.T)
        linear.bias.copy_(affine.bias_E)
        states = extreme_states(affine, norm).float()
        found, expected = out(torch.tanh(dense(states))), linear(states)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=2e-5)  # 100 + z: cancellation
    scaled = dense.weight[:C] / dense.weight[0, 0] * affine.matrix_DE[0, 0].float()
    torch.testing.assert_close(scaled, affine.matrix_DE.T.float(), rtol=3e-7, atol=0)
    mantissa, _ = math.frexp(out.weight[0, 0].item())
    assert mantissa == 0.5  # 1/ε is a power of two


def test_behind_relu_nothing_is_lost(affine):
    dense, out, linear = nn.Linear(D, D), nn.Linear(D, C), nn.Linear(D, C)
    put_behind_relu(dense, out, affine)
    with torch.no_grad():
        linear.weight.copy_(affine.matrix_DE.T)
        linear.bias.copy_(affine.bias_E)
        states = torch.randn(50, D, dtype=torch.float64)
        dense.double(), out.double(), linear.double()
        found, expected = out(torch.relu(dense(states))), linear(states)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_a_shift_of_the_norm_stands_for_a_bias(affine, norm):
    out, before = nn.Linear(D, C, bias=False), norm.bias.detach().double()
    x = torch.randn(20, D)
    expected = affine(norm(x).detach().double())
    put_without_bias(out, affine, norm)
    torch.testing.assert_close(out(norm(x)).detach().double(), expected, rtol=1e-5, atol=1e-4)
    shift = norm.bias.detach().double() - before
    assert torch.allclose(affine.matrix_DE.T @ shift, affine.bias_E, atol=1e-5)


def test_weights_that_depend_on_each_other_cannot_stand_for_a_bias(norm):
    column = torch.ones(D, 1, dtype=torch.float64)
    affine = Affine(column.repeat(1, 2), torch.tensor([1.0, -1.0]).double())
    with pytest.raises(NotAffineError, match="has no bias"):
        put_without_bias(nn.Linear(D, 2, bias=False), affine, norm)


@pytest.mark.parametrize(
    ("kind", "reads", "n_outputs", "told"),
    [
        ("modernbert", "first", 2, "no head is known for modernbert"),
        ("bert", "all", 2, "reads the first token, and the pooling of this run reads all tokens"),
        ("bert", "spans", 2, "reads the target words"),
        ("gpt2", "all", 2, "reads the last token"),
        ("distilbert", "first", 9, "room for 8 outputs at D = 16, and the task has 9"),
        ("bert", "first", 17, "room for 16"),
    ],
)
def test_why_there_is_no_head(kind, reads, n_outputs, told):
    with pytest.raises(NotAffineError, match=told):
        head_for(kind, reads, 16, n_outputs)
