"""The tiny encoder: random weights of a seed, a spelling tokenizer, dropout."""

import torch
from torch import nn

from isotrain.encoders.tiny import build_tiny


def test_the_seed_decides_the_weights_of_tiny():
    def weights(seed):
        torch.manual_seed(seed)
        return next(build_tiny(width=8, n_blocks=1, n_heads=1).parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_tiny_spells_what_it_does_not_know(tokenizer):
    pieces = ["[CLS]", "z", "##x", "##q", "##y", "!", "[SEP]"]
    assert tokenizer.convert_ids_to_tokens(tokenizer("Zxqy!")["input_ids"]) == pieces


def test_dropout_reaches_hidden_units_and_attention():
    encoder = build_tiny(width=8, n_blocks=2, n_heads=1, dropout=0.3)
    assert {m.p for m in encoder.modules() if isinstance(m, nn.Dropout)} == {0.3}
    assert {block.attention.self.dropout.p for block in encoder.blocks} == {0.3}


def test_dropout_leaves_the_weights_of_a_seed_alone():
    weights = []
    for dropout in ({}, {"dropout": 0.0}):
        torch.manual_seed(0)
        weights.append(build_tiny(width=8, n_blocks=1, n_heads=1, **dropout).state_dict())
    assert all(torch.equal(value, weights[0][name]) for name, value in weights[1].items())
