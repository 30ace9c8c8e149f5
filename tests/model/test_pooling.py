"""Pooling against loops: `[B, P, D]` with the vectors of one example side by side.

A sequences, T tokens, D hidden, S spans.
"""

import pytest
import torch

from isotrain.model.pooling import (
    ClsPooling,
    LastPooling,
    MeanPooling,
    SpanPooling,
    last_pool,
    mean_pool,
    span_pool,
)
from isotrain.types import Batch

B, T, D = 3, 5, 4


def batch(n_sequences=1, n_spans=0):
    generator = torch.Generator().manual_seed(n_sequences)
    rows = n_sequences * B
    length_A1 = torch.randint(2, T + 1, (rows, 1), generator=generator)
    mask = (torch.arange(T) < length_A1).long()
    spans = None
    if n_spans:
        start = torch.randint(0, T - 1, (rows, n_spans, 1), generator=generator)
        spans = torch.cat([start, start + 1 + torch.arange(n_spans)[:, None] % 2], dim=2)
    zeros = torch.zeros(rows, T, dtype=torch.int64)
    return Batch(zeros, mask, zeros, zeros, torch.zeros(B), torch.arange(B), spans, n_sequences)


def states(a, t=T, seed=0):
    return torch.randn(a, t, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The modules

OF_A_SEQUENCE = {  # from the states of its n real tokens
    ClsPooling: lambda hidden_ND: hidden_ND[0],
    LastPooling: lambda hidden_ND: hidden_ND[-1],
    MeanPooling: lambda hidden_ND: hidden_ND.mean(dim=0),
}


@pytest.mark.parametrize("q", [1, 2, 3])
@pytest.mark.parametrize("kind", OF_A_SEQUENCE)
def test_a_vector_of_each_sequence_reads_sequence_major(kind, q):
    hidden, data = states(q * B), batch(q)
    pooled = kind()(hidden, data)
    assert pooled.shape == (B, q, D)
    for b in range(B):
        for s in range(q):
            row = s * B + b
            expected = OF_A_SEQUENCE[kind](hidden[row, : int(data.attention_mask[row].sum())])
            if kind is MeanPooling:
                torch.testing.assert_close(pooled[b, s], expected)
            else:
                assert torch.equal(pooled[b, s], expected)


@pytest.mark.parametrize(("q", "s"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)])
def test_spans_keep_the_spans_of_one_sequence_together(q, s):
    hidden, data = states(q * B), batch(q, s)
    pooled = SpanPooling()(hidden, data)
    assert pooled.shape == (B, q * s, D)
    for b in range(B):
        for i in range(q):
            for k in range(s):
                low, high = data.spans[i * B + b, k].tolist()
                expected = hidden[i * B + b, low:high].mean(dim=0)
                torch.testing.assert_close(pooled[b, i * s + k], expected)


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("pooling", [ClsPooling(), LastPooling(), MeanPooling(), SpanPooling()])
def test_n_vectors_is_the_second_dimension(pooling, q):
    data = batch(q, 2)
    assert pooling(states(q * B), data).shape[1] == pooling.n_vectors(q, 2)


# The functions: pads, gradients, precision


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_last_is_the_last_real_token_with_pads_on_either_side(dtype):
    hidden = states(4, 6).requires_grad_()
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]])
    pooled = last_pool(hidden, mask.to(dtype))
    assert torch.equal(pooled, torch.stack([hidden[a, t] for a, t in enumerate((5, 2, 5, 0))]))
    pooled.sum().backward()
    assert hidden.grad.sum(dim=(1, 2)).tolist() == [4.0] * 4
    assert hidden.grad[1, 2].tolist() == [1.0] * 4


def test_mean_ignores_pads():
    hidden = states(3, 6)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
    expected = torch.stack([hidden[a, mask[a].bool()].mean(dim=0) for a in range(3)])
    hidden[mask == 0] = 1e6
    torch.testing.assert_close(mean_pool(hidden, mask), expected)


def test_tokens_outside_of_a_span_get_no_gradient():
    hidden = states(3, 6).requires_grad_()
    span_pool(hidden, torch.tensor([[[1, 3]]] * 3)).sum().backward()
    expected = torch.zeros(3, 6, 4, dtype=torch.float64)
    expected[:, 1:3] = 0.5
    torch.testing.assert_close(hidden.grad, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_near_double(dtype):
    hidden = states(2, 64).to(dtype)
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
    hidden = states(2, 6).float()
    spans = torch.tensor([[[0, 3], [2, 6]], [[1, 4], [0, 6]]])
    expected = span_pool(hidden, spans)
    with torch.autocast("cpu", torch.bfloat16):
        found = span_pool(hidden, spans)
    torch.testing.assert_close(found.float(), expected, atol=1e-6, rtol=1e-6)
