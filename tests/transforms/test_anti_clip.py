"""Directions that are amplified: closed form, gradient, one map over training.

N embeddings, D width. Its export is in `tests/export/test_layers.py`.
"""

import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.geometry.cluster_removal import Removal
from isotrain.transforms.cluster_pca import ClusterPCA
from tests.clouds import correlated as cloud


def amplifier(d, gain, n_components=2, **options):
    removal = Removal(mode="amplify", gain=gain, rho=1.0, **options)
    return ClusterPCA(d, 1, n_components, removal=removal, stats="batch").double()


@given(st.integers(4, 60), st.integers(4, 12), st.floats(1.01, 20.0), st.integers(0, 999))
@settings(max_examples=25)
def test_leading_variances_grow_by_the_squared_gain_and_others_stay(n, d, gain, seed):
    x = cloud(n, d, seed, mean=3.0)
    y = amplifier(d, gain)(x)
    before, after = (torch.linalg.eigvalsh(torch.cov(z.T)).flip(0) for z in (x, y))
    torch.testing.assert_close(after[:2], gain**2 * before[:2])
    torch.testing.assert_close(after[2:], before[2:], rtol=1e-7, atol=1e-9 * float(before[0]))
    torch.testing.assert_close(y.mean(dim=0), torch.zeros(d).double(), rtol=0, atol=1e-7 * gain)


def test_the_full_gradient_is_that_of_finite_differences():
    layer = amplifier(4, 2.5, 1, grad="full")
    assert torch.autograd.gradcheck(layer, cloud(9, 4, mean=1.0).requires_grad_())


def test_the_preset_is_one_map_over_training(composed):
    layer = instantiate(composed("isotropy=anti_clip").isotropy)(width=8).double()
    layer.fit(cloud(100, 8))
    assert layer.stats == "start"
    assert layer.removed_KR.tolist() == [[-2.0] * 3]


def test_a_gain_that_amplifies_nothing_is_warned_of_and_one_that_shrinks_is_refused():
    with pytest.warns(UserWarning, match=r"removal\.gain: without effect"):
        ClusterPCA(6, removal=Removal(mode="clip", gain=2.0))
    with pytest.warns(UserWarning, match=r"removal\.gain: without effect"):
        ClusterPCA(6, n_components=0, removal=Removal(mode="amplify", gain=2.0))
    with pytest.raises(ValueError, match="gain must be above 1, got 1"):
        Removal(mode="amplify", gain=1.0)
