"""Pooling modules: `[B, P, D]` with the vectors of one example side by side."""

import pytest
import torch

from isotrain.model.pooling import ClsPooling, LastPooling, MeanPooling, SpanPooling
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


def states(n_sequences):
    generator = torch.Generator().manual_seed(9)
    return torch.randn(n_sequences * B, T, D, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("q", [1, 2, 3])
def test_cls_reads_sequence_major(q):
    hidden = states(q)
    pooled = ClsPooling()(hidden, batch(q))
    assert pooled.shape == (B, q, D)
    for b in range(B):
        for s in range(q):
            assert torch.equal(pooled[b, s], hidden[s * B + b, 0])


@pytest.mark.parametrize("q", [1, 2, 3])
def test_last_reads_the_last_real_token_sequence_major(q):
    hidden, data = states(q), batch(q)
    pooled = LastPooling()(hidden, data)
    assert pooled.shape == (B, q, D)
    for b in range(B):
        for s in range(q):
            row = s * B + b
            assert torch.equal(pooled[b, s], hidden[row, int(data.attention_mask[row].sum()) - 1])


@pytest.mark.parametrize("q", [1, 2, 3])
def test_mean_over_real_tokens_reads_sequence_major(q):
    hidden, data = states(q), batch(q)
    pooled = MeanPooling()(hidden, data)
    assert pooled.shape == (B, q, D)
    for b in range(B):
        for s in range(q):
            row = s * B + b
            n = int(data.attention_mask[row].sum())
            torch.testing.assert_close(pooled[b, s], hidden[row, :n].mean(dim=0))


@pytest.mark.parametrize(("q", "s"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)])
def test_spans_keep_the_spans_of_one_sequence_together(q, s):
    hidden, data = states(q), batch(q, s)
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
    assert pooling(states(q), data).shape[1] == pooling.n_vectors(q, 2)
