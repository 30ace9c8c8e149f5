"""Directions that are amplified: closed form, one map over training.

N embeddings, D width. Its export is in `tests/export/test_layers.py`.
"""

import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.transforms.anti_clip import AntiClip
from tests.clouds import correlated as cloud


def amplifier(d, n_components=2):
    return AntiClip(d, n_components, rho=1.0, stats="batch").double()


@given(st.integers(4, 60), st.integers(4, 12), st.integers(0, 999))
@settings(max_examples=25)
def test_leading_variances_grow_by_the_square_of_three_and_others_stay(n, d, seed):
    x = cloud(n, d, seed, mean=3.0)
    y = amplifier(d)(x)
    before, after = (torch.linalg.eigvalsh(torch.cov(z.T)).flip(0) for z in (x, y))
    torch.testing.assert_close(after[:2], 9.0 * before[:2])
    torch.testing.assert_close(after[2:], before[2:], rtol=1e-7, atol=1e-9 * float(before[0]))
    torch.testing.assert_close(y.mean(dim=0), torch.zeros(d).double(), rtol=0, atol=3e-7)


def test_the_preset_is_one_map_over_training(composed):
    layer = instantiate(composed("isotropy=anti_clip").isotropy)(width=8).double()
    x = cloud(100, 8)
    layer.fit(x)
    first = layer(x)
    layer.observe(x)
    layer.fit()
    assert layer.stats == "start"
    assert torch.equal(layer(x[:50]), first[:50])
