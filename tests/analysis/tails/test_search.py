"""Which dimensions are extreme, and which are outliers."""

from __future__ import annotations

import math

import pytest
import torch

from isotrain.analysis.tails.search import (
    extreme_shares,
    mean_scores,
    outlier_dimensions,
    share_error,
)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_shares_against_a_loop():
    x = draw(60, 5)
    low, high = extreme_shares(x)
    for i in range(5):
        assert low[i].item() == pytest.approx(
            sum(int(r.tolist().index(min(r.tolist())) == i) for r in x) / 60
        )
        assert high[i].item() == pytest.approx(
            sum(int(r.tolist().index(max(r.tolist())) == i) for r in x) / 60
        )
    assert low.sum().item() == pytest.approx(1.0)
    assert high.sum().item() == pytest.approx(1.0)


def test_scores_against_the_definition():
    mean = draw(3, 40) * 5 + 2
    score = mean_scores(mean)
    for row, own in zip(mean.double(), score, strict=True):
        centre = sum(row.tolist()) / 40
        sd = math.sqrt(sum((v - centre) ** 2 for v in row.tolist()) / 40)
        for v, s in zip(row.tolist(), own.tolist(), strict=True):
            assert s == pytest.approx((v - centre) / sd)


@pytest.mark.parametrize("planted", [(0, 3), (17, 63), (40, 5)])
def test_planted_dimensions_are_found_wherever_they_are(planted):
    mean = draw(6, 64, seed=3) * 0.1
    mean[:, planted[0]] += 9.0
    mean[:, planted[1]] -= 6.0
    assert outlier_dimensions(mean_scores(mean), 3.0, 0.5) == list(planted)  # the farthest first


def test_the_error_of_a_share_against_resampled_sentences():
    generator = torch.Generator().manual_seed(0)
    sentence = torch.arange(200).repeat_interleave(5)
    chance = torch.rand(200, generator=generator)
    hit = (torch.rand(1000, generator=generator) < chance[sentence]).long()
    by_sentence = hit.reshape(200, 5)
    drawn = torch.randint(200, (2000, 200), generator=generator)
    spread = by_sentence[drawn].double().mean(dim=(1, 2)).std().item()
    assert share_error(hit, sentence) == pytest.approx(spread, rel=0.08)
