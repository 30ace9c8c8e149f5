"""Every loss function against a slow reference, with its gradient; and values in closed form."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.nn.functional import cosine_similarity, mse_loss, normalize

from isotrain.metrics.alignment import alignment as measured_alignment
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.uniformity import uniformity as measured_uniformity
from isotrain.objectives.alignment import alignment
from isotrain.objectives.anchor import anchor
from isotrain.objectives.angle import angle, angle_similarity
from isotrain.objectives.barlow import barlow
from isotrain.objectives.cosent import cosent
from isotrain.objectives.cosreg import cosreg
from isotrain.objectives.gor import gor
from isotrain.objectives.istar import istar
from isotrain.objectives.koleo import koleo
from isotrain.objectives.sigreg import sigreg
from isotrain.objectives.simcse import simcse
from isotrain.objectives.spectral import spectral
from isotrain.objectives.supcon import supcon
from isotrain.objectives.uniformity import uniformity
from isotrain.objectives.vicreg import vicreg
from tests.clouds import normal


def cosines(x):
    """Of every ordered pair of distinct embeddings."""
    pairs = itertools.permutations(range(len(x)), 2)
    return torch.stack([cosine_similarity(x[i], x[j], dim=0) for i, j in pairs])


def slow_gor(x, m, s):
    return m * cosines(x).mean() ** 2 + s * torch.relu(cosines(x).square().mean() - 1 / x.shape[1])


def slow_koleo(x, eps):
    apart = (2 - 2 * cosines(x).reshape(len(x), -1)).clamp(min=0).sqrt()
    return -(apart.min(dim=1).values + eps).log().mean()


def slow_spectral(x, k):
    value = torch.linalg.eigvalsh(torch.cov(x.T))
    return value[-k:].sum() / value.sum()


def slow_istar(x, reference, shrinkage):
    value = torch.linalg.eigvalsh((1 - shrinkage) * torch.cov(x.T) + shrinkage * reference)
    return 1 - (value.sum() ** 2 / value.square().sum() - 1) / (len(value) - 1)


def slow_sigreg(x, slices, t_max, n_points):
    """The trapezoid rule on the whole interval, with complex numbers."""
    t = torch.linspace(-t_max, t_max, 2 * n_points - 1, dtype=torch.float64)
    found = torch.exp(1j * (x @ slices)[..., None] * t).mean(dim=0)
    error = (found - torch.exp(-t * t / 2)).abs().square() * torch.exp(-t * t / 2)
    return torch.trapezoid(error, t).mean()


def slow_vicreg(x, y, invariance=25.0, variance=25.0, covariance=1.0, eps=1e-4):
    total = invariance * ((x - y) ** 2).mean()
    for z in (x, y):
        matrix = torch.cov(z.T)
        total = total + variance * (1 - (matrix.diagonal() + eps).sqrt()).relu().mean()
        squares = matrix.square().sum() - matrix.diagonal().square().sum()
        total = total + covariance * squares / z.shape[1]
    return total


def slow_barlow(x, y, off, scale, eps):
    n, d = x.shape
    a, b = ((z - z.mean(0)) / (z.var(0, correction=0) + eps).sqrt() for z in (x, y))
    total = 0.0
    for i, j in itertools.product(range(d), repeat=2):
        r = (a[:, i] * b[:, j]).sum() / n
        total = total + ((1 - r) ** 2 if i == j else off * r**2)
    return scale * total


def slow_ranking(similarity, labels, scale):
    pairs = itertools.product(zip(similarity, labels, strict=True), repeat=2)
    return sum((torch.exp(scale * (s - t)) for (s, y), (t, z) in pairs if y < z), 1.0).log()


def slow_angle(x, y):
    """|Re + Im| of the sum of quotients of complex numbers, moduli divided out."""
    z, w = (torch.complex(*v.chunk(2, dim=1)) for v in (x, y))
    quotient = (z * w.conj()).sum(dim=1) / (x.norm(dim=1) * y.norm(dim=1))
    return (quotient.real + quotient.imag).abs()


def covariance(d):
    return torch.cov(normal(3 * d, d, seed=9).T)


def slices(d):
    return normalize(normal(d, 5, seed=7, mean=0.0), dim=0)


def graded(x):
    return torch.arange(len(x)) * 7 % 5 / 2


OFF = (0.5, 2.0, 0.1)
CASES = {  # loss, reference, least number of embeddings
    "cosreg": (lambda x, y: cosreg(x), lambda x, y: cosines(x).sum() / len(x) ** 2, 2),
    "gor": (lambda x, y: gor(x, 0.5, 2.0), lambda x, y: slow_gor(x, 0.5, 2.0), 2),
    "gor default": (lambda x, y: gor(x), lambda x, y: slow_gor(x, 1.0, 1.0), 2),
    "uniformity": (
        lambda x, y: uniformity(x, 0.5),
        lambda x, y: (-0.5 * (2 - 2 * cosines(x))).exp().mean().log(),
        2,
    ),
    "koleo": (lambda x, y: koleo(x), lambda x, y: slow_koleo(x, 1e-8), 2),
    "koleo 0.1": (lambda x, y: koleo(x, 0.1), lambda x, y: slow_koleo(x, 0.1), 2),
    "spectral": (lambda x, y: spectral(x), lambda x, y: slow_spectral(x, 1), 3),
    "spectral 2": (lambda x, y: spectral(x, 2), lambda x, y: slow_spectral(x, 2), 4),
    "istar": (lambda x, y: istar(x, None, 0.7), lambda x, y: slow_istar(x, 0.0, 0.0), 3),
    "istar shrunk": (
        lambda x, y: istar(x, covariance(x.shape[1]).to(x), 0.2),
        lambda x, y: slow_istar(x, covariance(x.shape[1]), 0.2),
        3,
    ),
    "sigreg": (
        lambda x, y: sigreg(x, slices(x.shape[1]).to(x)),
        lambda x, y: slow_sigreg(x, slices(x.shape[1]), 3.0, 17),
        1,
    ),
    "sigreg 2": (
        lambda x, y: sigreg(x, slices(x.shape[1]).to(x), 2.0, 9),
        lambda x, y: slow_sigreg(x, slices(x.shape[1]), 2.0, 9),
        1,
    ),
    "alignment": (
        alignment,
        lambda x, y: (2 - 2 * cosine_similarity(x, y)).mean(),
        1,
    ),
    "alignment 3.5": (
        partial(alignment, alpha=3.5),
        lambda x, y: (2 - 2 * cosine_similarity(x, y)).pow(1.75).mean(),
        1,
    ),
    "anchor": (anchor, lambda x, y: 1 - cosine_similarity(x, y).mean(), 1),
    "anchor centred": (
        partial(anchor, centred=True),
        lambda x, y: 1 - cosine_similarity(x - x.mean(0), y - y.mean(0)).mean(),
        2,
    ),
    "anchor squared": (
        partial(anchor, distance="squared"),
        lambda x, y: mse_loss(x, y) / y.square().mean(),
        1,
    ),
    "vicreg": (vicreg, slow_vicreg, 2),
    "vicreg weights": (
        lambda x, y: vicreg(x, y, 2.0, 3.0, 0.5, 0.01),
        lambda x, y: slow_vicreg(x, y, 2.0, 3.0, 0.5, 0.01),
        2,
    ),
    "barlow": (barlow, lambda x, y: slow_barlow(x, y, 5e-3, 0.025, 1e-5), 2),
    "barlow weights": (
        lambda x, y: barlow(x, y, *OFF),
        lambda x, y: slow_barlow(x, y, *OFF),
        2,
    ),
    "cosent": (
        lambda x, y: cosent(x, y, graded(x), 3.0),
        lambda x, y: slow_ranking(cosine_similarity(x, y), graded(x), 3.0),
        1,
    ),
    "angle": (
        lambda x, y: angle(x, y, graded(x), 3.0),
        lambda x, y: slow_ranking(slow_angle(x, y), graded(x), 3.0),
        1,
    ),
}


@pytest.mark.parametrize(("n", "d"), [(2, 4), (5, 4), (6, 10), (12, 6)])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_those_of_the_slow_reference(name, n, d):
    loss, reference, least = CASES[name]
    x, y = (normal(max(n, least), d, seed=n + s).requires_grad_() for s in range(2))
    found, expected = loss(x, y), reference(x, y)
    assert found.item() == pytest.approx(expected.item(), abs=1e-10, rel=1e-10)
    mine, theirs = (
        torch.autograd.grad(value, [x, y], allow_unused=True) for value in (found, expected)
    )
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    single = loss(x.detach().float(), y.detach().float())
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(expected.item(), rel=1e-4, abs=2e-5)


@pytest.mark.parametrize("n", [4, 9])
def test_losses_equal_the_metrics_of_their_names(n):
    x, y = normal(n, 4), normal(n, 4, seed=1)
    assert cosreg(x).item() == pytest.approx(mean_cosine(x).item() * (n - 1) / n, abs=1e-12)
    assert uniformity(x, 3.0).item() == pytest.approx(measured_uniformity(x, t=3.0).item())
    assert alignment(x, y, 3.0).item() == pytest.approx(measured_alignment(x, y, 3.0).item())
    assert istar(x).item() == pytest.approx(1 - isoscore(x).item(), abs=1e-12)


EYE, ONE = torch.eye(4, dtype=torch.float64), torch.ones(4, 4, dtype=torch.float64)
AXES, LINE = torch.cat([EYE, -EYE]), torch.arange(5.0)[:, None].double() * torch.ones(4)
SQUARE = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).double() * 50
TWO = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double()
CROSS = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 3.0], [0.0, -3.0]]).double()
ORDER = torch.arange(4)
WON = math.log(math.exp(2.0) + 3) - 2.0  # of four orthogonal embeddings at temperature 1/2
CLOSED = [
    (cosreg(ONE), 0.75),
    (cosreg(EYE - 0.25), -0.25),
    (cosreg(ONE[:1]), 0.0),
    (gor(ONE), 1.75),
    (gor(EYE), 0.0),
    (uniformity(ONE), 0.0),
    (uniformity(EYE - 0.25), -16 / 3),  # a simplex has the least value
    (koleo(CROSS), -0.5 * math.log(2.0)),
    (koleo(ONE), -math.log(1e-8)),
    (spectral(AXES, 3), 0.75),
    (spectral(LINE), 1.0),
    (istar(AXES), 0.0),
    (istar(LINE), 1.0),
    (istar(ONE), 1.0),
    (istar(normal(5, 4), EYE, 1.0), 0.0),
    (alignment(TWO, -TWO), 4.0),
    (alignment(TWO, TWO.flip(1), 3.0), 2.0**1.5),
    (vicreg(CROSS, CROSS), 0.0),  # variances 6, no covariance
    (vicreg(CROSS, CROSS + 2), 100.0),
    (vicreg(ONE, ONE), 50 * 0.99),
    (barlow(SQUARE, SQUARE), 0.0),
    (anchor(TWO, -TWO), 2.0),
    (anchor(TWO + 1, TWO, "squared"), 4 / 5),
    (anchor(TWO + 1, TWO, centred=True), 0.0),
    (barlow(SQUARE, -SQUARE), 0.025 * 8),
    (cosent(EYE, ONE, ORDER), math.log(7)),  # every cosine is a half: six ordered pairs
    (cosent(EYE[:2], EYE[[1, 1]], ORDER[:2].flip(0)), 20 + math.log1p(math.exp(-20.0))),
    (angle(ONE, 2 * ONE, torch.tensor([0, 0, 1, 2])), math.log(6)),
    (simcse(ONE, 3 * ONE), math.log(4)),
    (simcse(ONE, ONE, ONE[:, None]), math.log(8)),
    (simcse(EYE, 7 * EYE, temperature=0.5), WON),
    (simcse(EYE, EYE.roll(1, 0), temperature=0.5), WON + 2),
    (simcse(EYE, EYE, temperature=0.5, decoupled=True), math.log(3) - 2),
    (simcse(ONE, ONE, decoupled=True), math.log(3)),
    (supcon(ONE, torch.tensor([0, 0, 1, 1])), math.log(3)),
]


@pytest.mark.parametrize(("found", "expected"), CLOSED)
def test_values_in_closed_form(found, expected):
    assert found.item() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("degrees", "expected"), [(0, 1.0), (45, math.sqrt(2)), (90, 1.0), (135, 0.0), (-45, 0.0)]
)
def test_the_angle_of_two_turned_vectors(degrees, expected):
    turn = math.radians(degrees)
    x = torch.tensor([[math.cos(turn), math.sin(turn)]], dtype=torch.float64)
    one = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert angle_similarity(x, one).item() == pytest.approx(expected, abs=1e-12)
