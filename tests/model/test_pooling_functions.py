"""Pooling against loops. A sequences, T tokens, D hidden, S spans."""

import pytest
import torch

from isotrain.model.pooling import last_pool, mean_pool, span_pool


def states(a=3, t=6, d=4, seed=0):
    return torch.randn(a, t, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_last_is_the_last_real_token_with_pads_on_either_side(dtype):
    hidden = states(a=4).requires_grad_()
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]])
    pooled = last_pool(hidden, mask.to(dtype))
    assert torch.equal(pooled, torch.stack([hidden[a, t] for a, t in enumerate((5, 2, 5, 0))]))
    pooled.sum().backward()
    assert hidden.grad.sum(dim=(1, 2)).tolist() == [4.0] * 4
    assert hidden.grad[1, 2].tolist() == [1.0] * 4


def test_mean_equals_a_loop_and_ignores_pads():
    hidden = states()
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
    expected = torch.stack(
        [torch.stack([hidden[a, t] for t in range(6) if mask[a, t]]).mean(dim=0) for a in range(3)]
    )
    torch.testing.assert_close(mean_pool(hidden, mask), expected)
    hidden[mask == 0] = 1e6
    torch.testing.assert_close(mean_pool(hidden, mask), expected)


def test_spans_equal_a_loop():
    hidden = states()
    spans = torch.tensor([[[0, 2], [2, 3]], [[1, 6], [0, 6]], [[5, 6], [3, 5]]])
    expected = torch.stack(
        [
            torch.stack([hidden[a, lo:hi].mean(dim=0) for lo, hi in spans[a].tolist()])
            for a in range(3)
        ]
    )
    torch.testing.assert_close(span_pool(hidden, spans), expected)


def test_tokens_outside_get_no_gradient():
    hidden = states().requires_grad_()
    span_pool(hidden, torch.tensor([[[1, 3]]] * 3)).sum().backward()
    expected = torch.zeros(3, 6, 4, dtype=torch.float64)
    expected[:, 1:3] = 0.5
    torch.testing.assert_close(hidden.grad, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_near_double(dtype):
    hidden = states(a=2, t=64).to(dtype)
    mask = torch.ones(2, 64)
    expected = hidden.double().mean(dim=1)
    torch.testing.assert_close(mean_pool(hidden, mask).double(), expected, atol=5e-3, rtol=1e-2)


def test_bfloat16_mean_of_a_long_sequence_counts_its_tokens_exactly():
    hidden = torch.ones(1, 301, 2, dtype=torch.bfloat16) * 3.0
    assert mean_pool(hidden, torch.ones(1, 301)).tolist() == [[3.0, 3.0]]


def test_float16_mean_of_large_states_does_not_overflow():
    hidden = torch.full((1, 512, 2), 200.0, dtype=torch.float16)
    assert mean_pool(hidden, torch.ones(1, 512)).tolist() == [[200.0, 200.0]]


def test_spans_under_autocast_equal_those_without():
    hidden = states(a=2).float()
    spans = torch.tensor([[[0, 3], [2, 6]], [[1, 4], [0, 6]]])
    expected = span_pool(hidden, spans)
    with torch.autocast("cpu", torch.bfloat16):
        found = span_pool(hidden, spans)
    torch.testing.assert_close(found.float(), expected, atol=1e-6, rtol=1e-6)
