"""Dropout by lanes: the law of torch's, its gradients, and attention with a mask."""

import pytest
import torch
from scipy.stats import chi2
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from isotrain.encoders.attention import attention, use_attention
from isotrain.encoders.fast_dropout import LaneDropout, draw_lanes, kept, lane_dropout
from isotrain.encoders.tiny import build_tiny


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_element_is_dropped_independently_at_its_rate(p):
    torch.manual_seed(0)
    dropped = round(p * 2**16)
    mask = kept(torch.Size((4000, 8)), dropped)
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
            rate = 1 - kept(torch.Size((n,)), round(share * 2**16))[lane::4].double().mean()
            assert abs(rate - share) < 5 * (share * (1 - share) / (n / 4)) ** 0.5


def test_values_and_gradients_are_those_of_the_mask():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 7, requires_grad=True)
    torch.manual_seed(1)
    y = lane_dropout(x, 0.25)
    torch.manual_seed(1)
    scaled = kept(x.shape, 2**14) / 0.75
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
    given = mask if masked else None
    found, _none = attention(layer, query, key, value, given, dropout=0.3)
    torch.testing.assert_close(found, expected.transpose(1, 2))
    gradients = [
        torch.autograd.grad(y.square().sum(), (query, key, value), retain_graph=True)
        for y in (found, expected)
    ]
    torch.testing.assert_close(*gradients)
    plain, _none = attention(layer, query, key, value, given)
    torch.testing.assert_close(
        plain, scaled_dot_product_attention(query, key, value, given).transpose(1, 2)
    )


def test_an_encoder_draws_lanes_in_training_and_computes_the_same_in_evaluation():
    torch.manual_seed(0)
    encoder = build_tiny(width=16, n_blocks=2, n_heads=2, dropout=0.2)
    names = list(encoder.state_dict())
    given = {"input_ids": torch.arange(12).reshape(2, 6), "attention_mask": torch.ones(2, 6)}
    given["attention_mask"][1, 4:] = 0
    encoder.eval()
    before = encoder.model(**given).last_hidden_state
    draw_lanes(encoder)
    use_attention(encoder.model)
    torch.testing.assert_close(encoder.model(**given).last_hidden_state, before)
    assert list(encoder.state_dict()) == names
    encoder.train()
    torch.manual_seed(3)
    first = encoder.model(**given).last_hidden_state
    state = torch.get_rng_state()
    second = encoder.model(**given).last_hidden_state
    assert not torch.equal(first, second)
    torch.set_rng_state(state)  # a resumed run goes on with the masks of this one
    assert torch.equal(encoder.model(**given).last_hidden_state, second)
