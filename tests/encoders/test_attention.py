"""Packed tokens, and attention over parts of a packed batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from isotrain.encoders.attention import Packing, attention
from isotrain.encoders.fast_dropout import LaneDropout


def mask_of(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=9), st.integers(1, 5))
def test_parts_hold_all_packed_tokens_in_their_order(lengths, n):
    mask_AT = mask_of(lengths)
    packing = Packing.by_length(mask_AT, n)
    x = torch.arange(1.0, mask_AT.numel() + 1).view_as(mask_AT)
    packed = packing.packed(x)
    assert torch.equal(packing.padded(packed), x * mask_AT)
    assert [length for part in packing.parts for length in part.mask_AT.sum(dim=1)] == sorted(
        lengths
    )
    pieces = packed.split([len(part.places_N) for part in packing.parts])
    for part, piece in zip(packing.parts, pieces, strict=True):
        assert part.mask_AT.shape[1] == int(part.mask_AT.sum(dim=1).max())
        for row in part.padded(piece):  # one sequence each, whose tokens are neighbours
            assert set(row[row > 0].diff().tolist()) <= {1.0}


@pytest.mark.parametrize("p", [0.0, 1e-6])  # the second: lanes, of which none is dropped
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_attention_of_packed_tokens_is_that_of_padded_ones(p, lengths, seed):
    torch.manual_seed(seed)
    module = nn.Module()
    module.dropout = LaneDropout(p)
    mask_AT = mask_of(lengths)
    packing = Packing.by_length(mask_AT, 4)
    padded = [torch.randn(*mask_AT.shape, 2, 3).mul(mask_AT[..., None, None]) for _ in "qkv"]
    packed = [packing.packed(x)[None].transpose(1, 2).requires_grad_() for x in padded]
    own, _ = attention(module, *packed, None, p, queries=packing, keys=packing)
    padded = [x.transpose(1, 2).requires_grad_() for x in padded]
    whole, _ = attention(nn.Module(), *padded, mask_AT[:, None, None])
    torch.testing.assert_close(own[0], packing.packed(whole))
    own.pow(3).sum().backward()
    packing.packed(whole).pow(3).sum().backward()
    for mine, reference in zip(packed, padded, strict=True):
        expected = packing.packed(reference.grad.transpose(1, 2))
        torch.testing.assert_close(mine.grad[0].transpose(0, 1), expected)
