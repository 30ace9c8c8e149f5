"""Each shortcut of a training step by itself: dropout, packing, the last block, frozen states."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from isotrain.encoders import fast
from isotrain.encoders.fast import (
    FastStep,
    FrozenPrefix,
    LaneDropout,
    Packing,
    attention,
    draw_lanes,
    is_bert_like,
    keep_mask,
    lane_dropout,
    prefix_key,
    states_after,
    tokens_read,
    use_attention,
)
from isotrain.encoders.tiny import build_tiny
from isotrain.model.pooling import ClsPooling, LastPooling, SpanPooling
from isotrain.tasks.data.encoding import collate, encode_pairs
from isotrain.types import Batch


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_element_is_dropped_independently_at_its_rate(p):
    torch.manual_seed(0)
    dropped = round(p * 2**16)
    mask = keep_mask(torch.Size((4000, 8)), dropped)
    # Chi-square of the 256 patterns of eight neighbours: rate, and independence within a draw
    # (four neighbours share one) and of the next.
    rate = 1 - dropped / 2**16
    patterns = (mask.long() * 2 ** torch.arange(8)).sum(dim=1)
    n_kept = torch.tensor([int(k).bit_count() for k in range(256)])
    expected = 4000 * rate**n_kept * (1 - rate) ** (8 - n_kept)
    counts = torch.bincount(patterns, minlength=256).double()
    common = expected >= 5
    others = counts[~common].sum(), expected[~common].sum()
    statistic = ((counts - expected) ** 2 / expected)[common].sum()
    if others[1] >= 5:
        statistic += (others[0] - others[1]) ** 2 / others[1]
    n_cells = int(common.sum()) + (others[1] >= 5)
    assert chi2.sf(float(statistic), n_cells - 1) > 1e-4


def test_every_lane_is_uniform():
    torch.manual_seed(0)
    n, shares = 2**16, torch.arange(1, 16) / 16
    for lane in range(4):
        for share in shares.tolist():
            torch.manual_seed(lane)
            rate = 1 - keep_mask(torch.Size((n,)), round(share * 2**16))[lane::4].double().mean()
            assert abs(rate - share) < 5 * (share * (1 - share) / (n / 4)) ** 0.5


def test_values_and_gradients_are_those_of_the_mask():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 7, requires_grad=True)
    torch.manual_seed(1)
    y = lane_dropout(x, 0.25)
    torch.manual_seed(1)
    scaled = keep_mask(x.shape, 2**14) / 0.75
    torch.testing.assert_close(y, x * scaled)
    weights = torch.randn_like(x)
    (gradient,) = torch.autograd.grad((y * weights).sum(), x)
    torch.testing.assert_close(gradient, weights * scaled)


@pytest.mark.parametrize(("p", "factor"), [(0.0, 1.0), (1.0, 0.0)])
def test_nothing_and_all_can_be_dropped(p, factor):
    x = torch.ones(5, requires_grad=True)
    y = lane_dropout(x, p)
    assert torch.equal(y, factor * x)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], factor * torch.ones(5))


def test_evaluation_drops_nothing():
    x = torch.randn(4)
    assert torch.equal(LaneDropout(0.5).eval()(x), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_type_stays(dtype):
    assert lane_dropout(torch.ones(9, dtype=dtype), 0.5).dtype == dtype


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_softmax_dropped_times_values(masked):
    torch.manual_seed(0)
    layer = nn.Module()
    layer.dropout = LaneDropout(0.3)
    query, key, value = (
        torch.randn(2, 3, n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 6, 6)
    )
    mask = torch.ones(2, 1, 5, 6, dtype=torch.bool)
    mask[1, :, :, 4:] = not masked
    scores = query @ key.transpose(2, 3) / 2
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    torch.manual_seed(1)
    expected = lane_dropout(weights, 0.3) @ value
    torch.manual_seed(1)
    seen = mask if masked else None
    found, _none = attention(layer, query, key, value, seen, dropout=0.3)
    torch.testing.assert_close(found, expected.transpose(1, 2))
    gradients = [
        torch.autograd.grad(y.square().sum(), (query, key, value), retain_graph=True)
        for y in (found, expected)
    ]
    torch.testing.assert_close(*gradients)
    plain, _none = attention(layer, query, key, value, seen)
    torch.testing.assert_close(
        plain, scaled_dot_product_attention(query, key, value, seen).transpose(1, 2)
    )


def test_an_encoder_draws_lanes_in_training_and_computes_the_same_in_evaluation():
    torch.manual_seed(0)
    encoder = build_tiny(width=16, n_blocks=2, n_heads=2, dropout=0.2)
    names = list(encoder.state_dict())
    inputs = {"input_ids": torch.arange(12).reshape(2, 6), "attention_mask": torch.ones(2, 6)}
    inputs["attention_mask"][1, 4:] = 0
    encoder.eval()
    before = encoder.model(**inputs).last_hidden_state
    draw_lanes(encoder)
    use_attention(encoder.model)
    torch.testing.assert_close(encoder.model(**inputs).last_hidden_state, before)
    assert list(encoder.state_dict()) == names
    encoder.train()
    torch.manual_seed(3)
    first = encoder.model(**inputs).last_hidden_state
    state = torch.get_rng_state()
    second = encoder.model(**inputs).last_hidden_state
    assert not torch.equal(first, second)
    torch.set_rng_state(state)  # a resumed run goes on with the masks of this one
    assert torch.equal(encoder.model(**inputs).last_hidden_state, second)


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
    pieces = packed.split([len(part.flat_index_N) for part in packing.parts])
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
    shape = (*mask_AT.shape, 2, 3)
    padded = [torch.randn(shape).double().mul(mask_AT[..., None, None]) for _ in "qkv"]
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


LENGTHS = (9, 6, 4, 8)


def a_batch():
    mask = torch.tensor([[1] * n + [0] * (9 - n) for n in LENGTHS])
    spans = torch.tensor([[[1, 3], [2, 6]], [[0, 1], [5, 6]], [[1, 2], [1, 2]], [[3, 8], [0, 2]]])
    return Batch(
        torch.arange(5, 41).reshape(4, 9),
        mask,
        torch.zeros(4, 9, dtype=torch.long),
        1 - mask,
        torch.zeros(4),
        torch.arange(4),
        spans,
    )


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("pooling", [ClsPooling(), LastPooling(), SpanPooling()])
def test_pooled_embeddings_and_gradients_are_those_of_the_whole_block(pooling, dropout, packs):
    torch.manual_seed(0)
    encoder = build_tiny(width=16, n_blocks=3, n_heads=2, dropout=dropout)
    encoder.train(dropout == 0.0)  # dropout: in evaluation, so that both see the same
    use_attention(encoder.model)
    batch = a_batch()
    read_AT = tokens_read(pooling.reads, batch)
    found = []
    for step in (encoder, FastStep(encoder, pooling.reads, packs)):
        encoder.zero_grad()
        states = step(batch, {})
        pooled = pooling(states.last, batch)
        pooled.pow(3).sum().backward()
        gradients = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
        found.append((pooled.detach(), gradients))
    (whole, gradients), (own, own_gradients) = found
    torch.testing.assert_close(own, whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own_gradients, gradients, rtol=1e-4, atol=1e-5)
    assert not states.last[~read_AT].any()
    mask_AT1 = batch.attention_mask[..., None]  # nobody reads pads
    whole = encoder(batch, {}).hidden_states
    for state, expected in zip(states.hidden_states[:-1], whole[:-1], strict=True):
        torch.testing.assert_close(state * mask_AT1, expected * mask_AT1)


def test_tokens_that_a_pooling_reads():
    batch = a_batch()
    assert tokens_read("first", batch).nonzero().tolist() == [[i, 0] for i in range(4)]
    last = [[i, n - 1] for i, n in enumerate(LENGTHS)]
    assert tokens_read("last", batch).nonzero().tolist() == last
    by_sequence = [sorted({t for s, e in spans for t in range(s, e)}) for spans in batch.spans]
    found = [row.nonzero().flatten().tolist() for row in tokens_read("spans", batch)]
    assert found == by_sequence
    assert tokens_read("all", batch) is None


def test_a_block_that_is_not_like_berts_is_reported():
    assert is_bert_like(build_tiny(width=8, n_blocks=1, n_heads=1).blocks[0])
    assert not is_bert_like(torch.nn.TransformerEncoderLayer(8, 1))


PAIRS = [("a dog sees " * n, "the cat") for n in range(1, 8)]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return build_tiny(width=16, n_blocks=3, n_heads=2).eval()


@pytest.fixture(params=["cross", "bi"])
def examples(request, encoder):
    found = encode_pairs(PAIRS, list(range(7)), encoder.tokenizer, request.param, max_length=48)
    return [dataclasses.replace(example, index=10 * example.index) for example in found]


@pytest.fixture
def prefix(encoder, examples, tmp_path, monkeypatch):
    """`prefix()`: states after block 2, in groups of three, always in the same files."""
    monkeypatch.setattr(fast, "GROUP", 3)
    calls = []

    def compute(encoder, depth, batch):
        calls.append(len(batch.input_ids))
        return states_after(encoder, depth, batch)

    monkeypatch.setattr(fast, "states_after", compute)

    def made():
        return FrozenPrefix(tmp_path, encoder, 2, examples, "32-true")

    made.calls = calls
    return made


def check(prefix, encoder, examples, order):
    batch = collate([examples[i] for i in order], encoder.tokenizer.pad_token_id)
    with torch.no_grad():
        expected = encoder(batch, {}).hidden_states[2] * batch.attention_mask[..., None]
    torch.testing.assert_close(prefix(batch), expected, rtol=1e-5, atol=1e-6)


def test_the_states_are_those_of_the_encoder_and_computed_once(prefix, encoder, examples):
    found = prefix()
    for order in ([3, 0], [6, 5, 4, 3, 2, 1, 0], [2], [3, 0]):
        check(found, encoder, examples, order)
    assert sum(prefix.calls) == sum(len(example.input_ids) for example in examples)
    check(prefix(), encoder, examples, range(7))  # another run reads them
    assert sum(prefix.calls) == sum(len(example.input_ids) for example in examples)


def test_a_group_that_is_gone_is_computed_again(prefix, encoder, examples, tmp_path):
    check(prefix(), encoder, examples, range(7))
    (file,) = tmp_path.rglob("0.npy")
    content = file.read_bytes()
    file.unlink()
    n_before = len(prefix.calls)
    check(prefix(), encoder, examples, range(7))
    assert len(prefix.calls) == n_before + 1
    assert file.read_bytes() == content


def test_states_of_another_configuration_have_another_key(encoder, examples):
    def key():
        return prefix_key(encoder, 2, examples, "32-true")

    keys = [key()]
    encoder.model.config._name_or_path = "elsewhere"
    assert key() == keys[0]
    encoder.model.config.hidden_act = "relu"
    keys.append(key())
    encoder.model.embeddings.register_buffer("scale", torch.ones(1))
    keys.append(key())
    encoder.model.embeddings.scale += 1
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_a_state_is_the_same_bit_by_bit_in_any_order(prefix, encoder, examples, tmp_path):
    def states(order):
        for file in tmp_path.rglob("*.npy"):
            file.unlink()
        found = prefix()
        for number in order:
            found(collate([examples[number]], encoder.tokenizer.pad_token_id))
        return np.concatenate([found.states[group] for group in range(len(found.groups))])

    assert np.array_equal(states(range(7)), states(reversed(range(7))))


def test_the_key_names_weights_below_tokens_and_precision(encoder, examples):
    key = partial(prefix_key, encoder, 2, examples, "32-true")
    first = key()
    assert first == key()
    assert first != prefix_key(encoder, 1, examples, "32-true")
    assert first != prefix_key(encoder, 2, examples[1:], "32-true")
    assert first != prefix_key(encoder, 2, examples, "bf16-mixed")
    with torch.no_grad():
        next(encoder.blocks[2].parameters()).add_(1.0)
        assert first == key()
        next(encoder.blocks[1].parameters()).add_(1.0)
    assert first != key()
