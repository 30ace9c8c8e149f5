"""Directions that are amplified: closed form, gradient, one map over training.

N embeddings, D width. Its export is in `tests/export/test_layers.py`.
"""

import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.transforms.cluster_pca import ClusterPCA
from tests.clouds import correlated as cloud


def amplifier(d, n_components=2, **options):
    options = {"removal": "amplify", "rho": 1.0, "stats": "batch", **options}
    return ClusterPCA(d, 1, n_components, **options).double()


@given(st.integers(4, 60), st.integers(4, 12), st.integers(0, 999))
@settings(max_examples=25)
def test_leading_variances_grow_by_the_square_of_three_and_others_stay(n, d, seed):
    x = cloud(n, d, seed, mean=3.0)
    y = amplifier(d)(x)
    before, after = (torch.linalg.eigvalsh(torch.cov(z.T)).flip(0) for z in (x, y))
    torch.testing.assert_close(after[:2], 9.0 * before[:2])
    torch.testing.assert_close(after[2:], before[2:], rtol=1e-7, atol=1e-9 * float(before[0]))
    torch.testing.assert_close(y.mean(dim=0), torch.zeros(d).double(), rtol=0, atol=3e-7)


def test_the_full_gradient_is_that_of_finite_differences():
    layer = amplifier(4, 1, grad="full")
    assert torch.autograd.gradcheck(layer, cloud(9, 4, mean=1.0).requires_grad_())


def test_the_preset_is_one_map_over_training(composed):
    layer = instantiate(composed("isotropy=anti_clip").isotropy)(width=8).double()
    layer.fit(cloud(100, 8))
    assert layer.stats == "start"
    assert layer.removed_KR.tolist() == [[-2.0] * 3]
