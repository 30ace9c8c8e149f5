"""Beside an outlier dimension float32 cannot tell small directions from none; layers still can."""

import pytest
import torch

from isotrain.geometry.spectra import eigenpairs, leading_directions
from isotrain.transforms.all_but_the_top import AllButTheTop
from isotrain.transforms.clip import Clip
from isotrain.transforms.spectral_temper import SpectralTemper
from isotrain.transforms.whitening import Whitening
from isotrain.transforms.zca import ZCA

N, D = 256, 128
LAYERS = {
    "whitening": Whitening(D),
    "published whitening": Whitening(D, epsilon=0.0),
    "zca": ZCA(D),
    "zca without floor": ZCA(D, epsilon=0.0),
    "zca, small floor": ZCA(D, epsilon=1e-5),
    "temper": SpectralTemper(D),
    "all but the top": AllButTheTop(D),
    "clip": Clip(D),
}


def cloud(n, outlier, generator, mean=0.0):
    """One dimension of `outlier` standard deviations, or a spectrum that falls as i⁻²."""
    x = torch.randn(n, D, generator=generator)
    if outlier is None:
        return x / torch.arange(1, D + 1) + mean
    x[:, 5] *= outlier
    return x + mean


@pytest.mark.parametrize("outlier", [None, 300, 3000])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_that_of_float64(name, outlier):
    generator = torch.Generator().manual_seed(0)
    x, y = (cloud(n, outlier, generator) for n in (N, 64))
    layer = LAYERS[name].train()
    outputs = []
    for dtype in (torch.float32, torch.float64):
        layer = layer.to(dtype)
        layer.fit(x.to(dtype))
        outputs.append(layer.eval()(y.to(dtype)).double())
    spread = [(out - out.mean(dim=0)).square().sum() for out in outputs]
    assert spread[0] / spread[1] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("n", [12, 400])
@pytest.mark.parametrize("mean", [0.0, 50.0])
def test_directions_that_are_not_there_stay_0(n, mean):
    """Repeated embeddings of rank 4, also far from 0."""
    generator = torch.Generator().manual_seed(1)
    x = cloud(5, 300, generator, mean)[torch.arange(n) % 5]
    centred = x - x.mean(dim=0)
    basis = leading_directions(centred, 8)
    assert basis.square().sum(dim=0).round().tolist() == [1.0] * 4 + [0.0] * 4
    pairs = eigenpairs(centred, D)
    assert int((pairs.value_GS > pairs.zero_G1).sum()) == 4


def test_a_clear_spectrum_stays_in_float32():
    generator = torch.Generator().manual_seed(2)
    for n in (40, 500):
        x = cloud(n, 3, generator)
        assert eigenpairs(x - x.mean(dim=0), D).x_GND.dtype == torch.float32
    assert eigenpairs(cloud(500, 3000, generator), 1).x_GND.dtype == torch.float32
    assert eigenpairs(cloud(500, 3000, generator), 2).x_GND.dtype == torch.float64


def test_a_small_floor_hides_no_rounding():
    """Each coordinate, not the variance alone, which the outlier dimension dominates."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1024, D, generator=generator) * torch.logspace(0, -3, D)
    x[:, 5] = 100 * torch.randn(1024, generator=generator)
    for epsilon in (0.1, 1e-3, 1e-5, 0.0):
        rows = [
            ZCA(D, epsilon=epsilon).to(t).estimate(x.to(t)).matrix_DD
            for t in (x.dtype, torch.float64)
        ]
        torch.testing.assert_close(
            rows[0].double(), rows[1], rtol=0, atol=5e-3 * float(rows[1].max())
        )
