"""The tiny encoder: random weights of a seed, a spelling tokenizer, dropout."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from isotrain.encoders.tiny import build_tiny


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    return build_tiny(width=16, n_blocks=3, n_heads=2)


def test_the_seed_decides_the_weights_of_tiny():
    def weights(seed):
        torch.manual_seed(seed)
        return next(build_tiny(width=8, n_blocks=1, n_heads=1).parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_tiny_spells_what_it_does_not_know(tiny):
    ids = tiny.tokenizer("Zxqy!")["input_ids"]
    assert tiny.tokenizer.convert_ids_to_tokens(ids) == [
        "[CLS]",
        "z",
        "##x",
        "##q",
        "##y",
        "!",
        "[SEP]",
    ]
    assert tiny.tokenizer.unk_token_id not in ids


def dropout_of(encoder):
    """Of hidden units, and of attention weights."""
    hidden = {m.p for m in encoder.modules() if isinstance(m, nn.Dropout)}
    attention = {block.attention.self.dropout.p for block in encoder.blocks}
    return hidden, attention


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.3])
def test_dropout_reaches_hidden_units_and_attention(dropout):
    encoder = build_tiny(width=8, n_blocks=2, n_heads=1, dropout=dropout)
    assert dropout_of(encoder) == ({dropout}, {dropout})
    assert encoder.model.config.attention_probs_dropout_prob == dropout


def test_dropout_leaves_the_weights_of_a_seed_alone():
    weights = []
    for dropout in ({}, {"dropout": 0.1}, {"dropout": 0.0}):
        torch.manual_seed(0)
        weights.append(build_tiny(width=8, n_blocks=1, n_heads=1, **dropout).state_dict())
    for other in weights[1:]:
        assert all(torch.equal(value, weights[0][name]) for name, value in other.items())


def test_a_share_beyond_one_is_refused():
    with pytest.raises(ValueError, match="dropout"):
        build_tiny(width=8, n_blocks=1, n_heads=1, dropout=1.5)
