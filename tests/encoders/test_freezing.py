"""Freezing: exactly the named parameters stop training."""

from __future__ import annotations

import pytest
import torch

from isotrain.encoders.freezing import (
    freeze_embeddings,
    freeze_encoder,
    freeze_first_n,
    freeze_nothing,
)
from isotrain.encoders.tiny import build_tiny
from isotrain.training.optim import count_parameters


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return build_tiny(width=8, n_blocks=3, n_heads=1)


def frozen(encoder):
    """The parts that have a frozen parameter; each is frozen as a whole."""
    parts = {"embeddings": encoder.embeddings}
    parts |= {f"block {k}": block for k, block in enumerate(encoder.blocks, start=1)}
    found = []
    for name, part in parts.items():
        flags = {p.requires_grad for p in part.parameters()}
        assert len(flags) == 1
        if flags == {False}:
            found.append(name)
    n_parts = sum(p.numel() for part in parts.values() for p in part.parameters())
    assert n_parts == sum(p.numel() for p in encoder.parameters())
    return found


def test_nothing(encoder):
    freeze_nothing(encoder)
    assert frozen(encoder) == []


def test_embeddings(encoder):
    freeze_embeddings(encoder)
    assert frozen(encoder) == ["embeddings"]
    n_embeddings = sum(p.numel() for p in encoder.embeddings.parameters())
    counts = count_parameters(encoder)
    assert counts["total"] - counts["trainable"] == n_embeddings > 0


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_first_n(encoder, n):
    freeze_first_n(encoder, n_blocks=n)
    assert frozen(encoder) == ["embeddings", *(f"block {k}" for k in range(1, n + 1))]
    block = sum(p.numel() for p in encoder.blocks[0].parameters())
    assert count_parameters(encoder)["trainable"] == (3 - n) * block


@pytest.mark.parametrize("n", [-1, 4])
def test_a_block_that_is_not_there(encoder, n):
    with pytest.raises(ValueError, match=rf"freezing\.n_blocks must lie in 0 to 3 .* got {n}"):
        freeze_first_n(encoder, n_blocks=n)
    assert frozen(encoder) == []


def test_the_whole_encoder(encoder):
    freeze_encoder(encoder)
    assert frozen(encoder) == ["embeddings", "block 1", "block 2", "block 3"]
    assert count_parameters(encoder)["trainable"] == 0


def test_freezing_leaves_the_mode_alone(encoder):
    freeze_encoder(encoder)
    assert all(module.training for module in encoder.modules())
