"""Heads on the pooled vectors."""

import math

import pytest
import torch

from isotrain.model.heads import CosineHead, LinearHead


def pooled(p, b=5, d=4, seed=0):
    return torch.randn(b, p, d, generator=torch.Generator().manual_seed(seed))


def test_one_vector_is_a_linear_map():
    head = LinearHead(4, n_vectors=1, n_outputs=3).eval()
    x = pooled(1)
    expected = x[:, 0] @ head.linear.weight.T + head.linear.bias
    torch.testing.assert_close(head(x), expected)


def test_a_pair_is_u_v_difference_product():
    head = LinearHead(4, n_vectors=2, n_outputs=1).eval()
    x = pooled(2)
    for b in range(5):
        u, v = x[b]
        features = torch.cat([u, v, (u - v).abs(), u * v])
        torch.testing.assert_close(head(x)[b], head.linear(features))


def test_weights_start_as_bert_does():
    torch.manual_seed(0)
    head = LinearHead(1000, n_vectors=1, n_outputs=50)
    assert head.linear.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert head.linear.weight.mean().item() == pytest.approx(0.0, abs=4 * 0.02 / math.sqrt(50_000))
    assert not bool(head.linear.bias.any())


def test_cosine_equals_the_formula_and_ignores_length():
    x = pooled(2)
    found = CosineHead()(x)
    expected = [float(u @ v / (u.norm() * v.norm())) for u, v in x]
    assert found.shape == (5, 1)
    assert found[:, 0].tolist() == pytest.approx(expected, abs=1e-6)
    torch.testing.assert_close(CosineHead()(x * torch.tensor([[7.0], [0.1]])), found)
    assert not list(CosineHead().parameters())
