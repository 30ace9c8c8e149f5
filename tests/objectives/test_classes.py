"""The classes around the loss functions: options, read points, what is undefined, positives."""

from functools import partial
from inspect import signature

import pytest
import torch

from isotrain.objectives.alignment import Alignment, alignment
from isotrain.objectives.angle import AnglE, angle
from isotrain.objectives.barlow import Barlow, barlow
from isotrain.objectives.cosent import CoSENT, cosent
from isotrain.objectives.cosreg import CosReg, cosreg
from isotrain.objectives.dcl import DCL, dcl
from isotrain.objectives.gor import GOR, gor
from isotrain.objectives.istar import IStar, istar
from isotrain.objectives.koleo import KoLeo, koleo
from isotrain.objectives.sigreg import SIGReg, sigreg
from isotrain.objectives.simcse import SimCSE, simcse
from isotrain.objectives.spectral import Spectral, spectral
from isotrain.objectives.supcon import SupCon, supcon
from isotrain.objectives.uniformity import Uniformity, uniformity
from isotrain.objectives.vicreg import VICReg, vicreg
from isotrain.objectives.visreg import VISReg, visreg
from tests.clouds import normal

D = 4
OFF = {"invariance_weight": 2.0, "variance_weight": 3.0, "covariance_weight": 0.25, "eps": 0.1}
NARROW = {kind: partial(kind, width=D) for kind in (SimCSE, DCL, SupCon)}
WIDE, BLOCKS = partial(Spectral, width=D), partial(IStar, width=D, n_blocks=3)
CLASSES = [  # class, its loss, options, and the fewest embeddings
    (CosReg, cosreg, {}, 2),
    (GOR, gor, {"mean_weight": 0.5, "second_moment_weight": 2.0}, 2),
    (Uniformity, uniformity, {"t": 1.5}, 2),
    (KoLeo, koleo, {"eps": 0.01}, 2),
    (WIDE, spectral, {"n_components": 2}, 4),
    (partial(BLOCKS, clouds="each", shrinkage=0.0), istar, {}, 3),
    (Alignment, alignment, {"alpha": 3.0}, 1),
    (VICReg, vicreg, OFF, 2),
    (Barlow, barlow, {"off_diagonal_weight": 0.3, "scale": 1.5, "eps": 0.2}, 2),
]
over_classes = pytest.mark.parametrize(("kind", "loss", "options", "least"), CLASSES)
OF_PAIRS, BOTH = (Alignment, VICReg, Barlow), ("pooled", "layer_1/tokens")
ZEROS = torch.zeros(8)


@over_classes
def test_options_reach_the_loss_and_read_points_are_averaged(kind, loss, options, least):
    objective = kind(weight=0.3, reads=BOTH, **options)
    pooled, tokens = ([normal(*s, seed=k) for k in (0, 1)] for s in ((8, 1, D), (11, D)))
    expected = [
        loss(*(x.reshape(-1, D) for x in (both if kind in OF_PAIRS else both[:1])), **options)
        for both in (pooled, tokens)
    ]
    views = list(zip(pooled, tokens, strict=True))
    found = objective(views, ZEROS)
    assert (objective.weight, objective.needs) == (0.3, "rows")
    assert objective.n_views == (2 if kind in OF_PAIRS else 1)
    assert found.item() == pytest.approx(sum(expected).item() / 2, abs=1e-12)
    if kind is not GOR:  # each vector of an example is an embedding of the cloud
        joined = [[x.reshape(4, 2, D), y] for x, y in views]
        assert objective(joined, ZEROS).item() == pytest.approx(found.item(), abs=1e-12)


@over_classes
def test_too_few_or_equal_embeddings_are_undefined_and_have_no_gradient(kind, loss, options, least):
    objective = kind(weight=1.0, reads=BOTH, **options)
    good = normal(9, D, seed=3)
    few = [normal(least - 1, D)]
    few += [normal(1, D).repeat(9, 1)] * (kind is Barlow or kind is WIDE or loss is istar)
    for x in few:
        x.requires_grad_()
        found = objective([[x, good], [x.detach(), good.flip(0)]], ZEROS)
        alone = loss(good, good.flip(0), **options) if kind in OF_PAIRS else loss(good, **options)
        assert found.item() == pytest.approx(alone.item() / 2, abs=1e-12)
        assert objective.counters["undefined"].item() == 1.0
        found.backward()
        assert not x.grad.any()
    objective([[normal(least, D)] * 2, [normal(least, D, seed=1)] * 2], ZEROS)
    assert objective.counters["undefined"].item() == 0.0


OTHERS = [(SimCSE, simcse), (SupCon, supcon), (CoSENT, cosent), (AnglE, angle), (SIGReg, sigreg)]
OTHERS.append((VISReg, visreg))


@pytest.mark.parametrize(("kind", "loss"), [*(case[:2] for case in CLASSES), *OTHERS])
def test_defaults_of_a_class_are_those_of_its_loss(kind, loss):
    of_class, of_loss = (signature(one).parameters for one in (kind, loss))
    for name in of_class.keys() & of_loss.keys() - {"shrinkage"}:
        assert of_class[name].default == of_loss[name].default, name


def test_each_vector_of_an_example_is_a_cloud_of_gor():
    objective, one = GOR(1.0), normal(1, 3, D).requires_grad_()
    loss = objective([[one]], ZEROS)
    loss.backward()
    assert (loss.item(), bool(one.grad.any())) == (0.0, False)
    assert objective.counters["undefined"].item() == 3.0


@pytest.mark.parametrize("labels", [torch.ones(1), torch.tensor([2, 2]), torch.full((3,), 0.4)])
@pytest.mark.parametrize("kind", [CoSENT, AnglE])
def test_a_batch_of_equal_labels_has_no_order(kind, labels):
    objective, x = kind(1.0), normal(len(labels), 2, D).requires_grad_()
    loss = objective([[x]], labels)
    loss.backward()
    assert (loss.item(), bool(x.grad.any())) == (0.0, False)
    assert objective.counters["undefined"] == 1


@pytest.mark.parametrize(("kind", "loss"), [(CoSENT, cosent), (AnglE, angle)])
def test_rankings_compare_the_two_vectors_of_each_example(kind, loss):
    objective, x, labels = kind(weight=0.3, scale=5.0), normal(6, 2, D), torch.arange(6.0)
    assert (objective.weight, objective.n_views, objective.needs) == (0.3, 1, "scored_pairs")
    found = objective([[x]], labels)
    assert found.item() == loss(x[:, 0], x[:, 1], labels, 5.0).item()
    assert objective.counters["undefined"] == 0
    turned = kind(1.0, scale=5.0, more_similar="lower")([[x]], 5.0 - labels)
    assert turned.item() == pytest.approx(found.item(), abs=1e-12)


# Positives

SCORES = torch.tensor([0.0, 0.8, 0.5, 1.0, 0.79])


@pytest.mark.parametrize(
    ("interval", "labels", "chosen"),
    [
        (None, SCORES, [0, 1, 2, 3, 4]),
        ([0.8, 1.0], SCORES.double(), [1, 3]),
        ([0, 0], torch.tensor([1, 0, 0, 1, 1]), [1, 2]),
    ],
)
@pytest.mark.parametrize(
    ("kind", "loss"), [(Alignment, alignment), (NARROW[SimCSE], simcse), (NARROW[DCL], dcl)]
)
def test_pairs_are_those_whose_label_lies_in_the_interval(kind, loss, interval, labels, chosen):
    objective = kind(1.0, positives="pair", positive_labels=interval)
    assert (objective.n_views, objective.needs in ("two_vectors", "pairs")) == (1, True)
    vectors = normal(5, 2, D)
    expected = loss(vectors[chosen, 0], vectors[chosen, 1])
    assert objective([[vectors]], labels).item() == pytest.approx(expected.item(), abs=1e-13)


@pytest.mark.parametrize("kind", [Alignment, Barlow, VICReg, NARROW[SimCSE], NARROW[DCL]])
def test_a_batch_without_a_pair_of_that_label_is_zero_and_counted(kind):
    objective = kind(1.0, positives="pair", positive_labels=[1, 1])
    vectors = normal(5, 2, D).requires_grad_()
    loss = objective([[vectors]], torch.zeros(5))
    loss.backward()
    assert (loss.item(), bool(vectors.grad.any())) == (0.0, False)
    assert objective.counters["undefined"].item() == 1.0
    assert objective.counters.get("anchors_skipped", 0.0) == 0.0
    objective([[vectors]], torch.tensor([1, 1, 0, 1, 1]))
    assert objective.counters["undefined"].item() == 0.0


@pytest.mark.parametrize("shape", [(6, D), (2, 3, D)])
def test_pairs_are_two_vectors_of_an_example(shape):
    with pytest.raises(ValueError, match="too many values to unpack"):
        Alignment(weight=1.0, positives="pair")([[normal(*shape)]], ZEROS)


ERRORS = [
    *(
        (Alignment, {"positives": "pair", "positive_labels": interval}, "positive_labels must be")
        for interval in ([1], [], [0, 1, 2])
    ),
    (Alignment, {"alpha": 0.0}, "alpha must be above 0"),
    (Barlow, {"scale": 0.0}, "scale must be above 0"),
    (VICReg, {"eps": 0.0}, "eps must be above 0"),
    (KoLeo, {"eps": 0.0}, "eps must be above 0"),
    (Uniformity, {"t": 0.0}, "t must be above 0"),
    (WIDE, {"n_components": 0}, "n_components must be at least 1"),
    (WIDE, {"n_components": 4}, "below the width, got 4 of 4"),
    (BLOCKS, {"shrinkage": 1.1}, "shrinkage must be at most 1"),
    (BLOCKS, {"clouds": "both"}, "clouds must be each or union"),
    (BLOCKS, {"reference": "none"}, "reference must be queue or epoch"),
    (VISReg, {"shape_weight": -1.0}, "shape_weight must be at least 0"),
    (SIGReg, {"rows": "unit"}, "rows must be scaled or raw"),
    (CoSENT, {"more_similar": "up"}, "more_similar must be higher or lower, got 'up'"),
    (CoSENT, {"scale": 0}, "scale must be above 0, got 0"),
    (NARROW[SupCon], {"n_views": 3}, "n_views must be 1 or 2, got 3"),
    (NARROW[SimCSE], {"positives": "triplet"}, "positives must be dropout or pair, got 'triplet'"),
    *((NARROW[k], {"temperature": 0.0}, "temperature must be above 0") for k in (SimCSE, SupCon)),
    *(
        (kind, {"reads": reads}, "reads must ")
        for kind in (CoSENT, NARROW[SimCSE])
        for reads in ([], ["pooled", "before"], ["all/cls"], "pooled")
    ),
    (CoSENT, {"reads": ["poled"]}, "got 'poled'"),
]


@pytest.mark.parametrize(("kind", "options", "words"), ERRORS)
def test_constructor_errors_name_the_option(kind, options, words):
    with pytest.raises(ValueError, match=words):
        kind(weight=1.0, **options)
