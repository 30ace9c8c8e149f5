"""Losses against the packages that publish them: values, and gradients where they have one."""

import numpy as np
import pytest
import torch
from IsoScore import IsoScore
from pytorch_metric_learning.losses import NTXentLoss, SupConLoss
from sentence_transformers.sentence_transformer.losses import (
    AnglELoss,
    CoSENTLoss,
    GlobalOrthogonalRegularizationLoss,
    MultipleNegativesRankingLoss,
)
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from isotrain.objectives.angle import angle
from isotrain.objectives.barlow import barlow
from isotrain.objectives.cosent import cosent
from isotrain.objectives.gor import GOR, gor
from isotrain.objectives.istar import IStar, istar
from isotrain.objectives.koleo import koleo
from isotrain.objectives.simcse import simcse
from isotrain.objectives.spectral import spectral
from isotrain.objectives.supcon import supcon
from tests.clouds import correlated, normal

GRADED = torch.tensor([0.0, 4.2, 2.5, 2.5, 1.0, 5.0])
ZEROS = torch.zeros(8)


def assert_same(found, expected, leaves):
    """Values, and gradients of the leaves."""
    assert found.item() == pytest.approx(expected.item(), abs=1e-11)
    mine, theirs = (torch.autograd.grad(loss, leaves) for loss in (found, expected))
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("labels", [GRADED, (GRADED > 2).long(), GRADED > 2])
@pytest.mark.parametrize("scale", [20.0, 1.0])
@pytest.mark.parametrize(("loss", "published"), [(cosent, CoSENTLoss), (angle, AnglELoss)])
def test_rankings_are_those_of_sentence_transformers(loss, published, scale, labels):
    x, y = (normal(6, 8, seed=s).requires_grad_() for s in range(2))
    expected = published(None, scale).compute_loss_from_embeddings([x, y], labels)
    assert_same(loss(x, y, labels, scale), expected, [x, y])
    if scale == 20.0:  # the default of both
        assert loss(x, y, labels).item() == loss(x, y, labels, scale).item()


@pytest.mark.parametrize("n_negatives", [0, 1, 3])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("n", "d", "tau"), [(2, 3, 0.05), (8, 16, 0.05), (5, 4, 0.5)])
def test_simcse_is_that_of_sentence_transformers(n, d, tau, symmetric, n_negatives):
    columns = [normal(n, d, seed=s).requires_grad_() for s in range(2 + n_negatives)]
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
    oracle = MultipleNegativesRankingLoss(None, scale=1 / tau, **(both if symmetric else {}))
    negatives = torch.stack(columns[2:], dim=1) if n_negatives else None
    found = simcse(*columns[:2], negatives, temperature=tau, symmetric=symmetric)
    assert_same(found, oracle.compute_loss_from_embeddings(columns, None), columns)


def test_simcse_is_nt_xent_of_pytorch_metric_learning():
    x, y, labels = normal(6, 5), normal(6, 5, seed=1), torch.arange(6)
    expected = NTXentLoss(temperature=0.2)(x, labels, ref_emb=y, ref_labels=labels.clone())
    assert simcse(x, y, temperature=0.2).item() == pytest.approx(expected.item(), abs=1e-11)


@pytest.mark.parametrize("labels", [[0, 1, 1, 0, 2, 1, 2, 2], [0, 1, 2, 0, 3, 4, 1, 5]])
@pytest.mark.parametrize("tau", [0.1, 0.5])
def test_supcon_is_that_of_pytorch_metric_learning_also_where_anchors_are_skipped(labels, tau):
    x, labels = normal(8, 5).requires_grad_(), torch.tensor(labels)
    assert_same(supcon(x, labels, temperature=tau), SupConLoss(temperature=tau)(x, labels), [x])


@pytest.mark.parametrize(("n", "d"), [(2, 2), (2, 9), (12, 5), (5, 12)])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.0, 1.0), (2.0, 0.5)])
def test_gor_is_that_of_sentence_transformers(n, d, weights):
    options = dict(zip(("mean_weight", "second_moment_weight"), weights, strict=True))
    x = normal(n, d, seed=n).requires_grad_()
    published = GlobalOrthogonalRegularizationLoss(torch.nn.Identity(), **options)
    expected = sum(published.compute_loss_from_embeddings([x]).values())
    assert_same(gor(x, **options), expected, [x])
    vectors = normal(8, 3, d, seed=2)  # each vector of an example is a column
    expected = sum(published.compute_loss_from_embeddings([*vectors.unbind(1)]).values())
    found = GOR(1.0, **options)([[vectors]], ZEROS)
    assert found.item() == pytest.approx(expected.item(), abs=1e-11)


@pytest.mark.parametrize(("n", "d"), [(3, 2), (7, 20), (20, 7), (20, 20)])
@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 0.75, 1.0])
def test_istar_is_one_less_isoscore_star_of_its_package(n, d, shrinkage):
    x, reference = correlated(n, d, mean=1.0), torch.cov(correlated(3 * d, d, seed=2).T)
    published = IsoScore.istar().IsoScore_star(x.clone(), reference, shrinkage, is_eval=False)
    assert istar(x, reference, shrinkage).item() == pytest.approx(1 - published.item(), abs=1e-6)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_clouds_alone_and_their_union_are_those_of_the_isoscore_package(shrinkage):
    clouds = [correlated(n, 5, seed=n) for n in (9, 30, 14)]

    def published(x):
        score = IsoScore.istar().IsoScore_star(x.clone(), torch.cov(x.T), shrinkage, is_eval=False)
        return 1 - score.item()

    for kind, expected in (
        ("each", np.mean([published(x) for x in clouds])),
        ("union", published(torch.cat(clouds))),
    ):
        objective = IStar(1.0, 5, 3, shrinkage=shrinkage, clouds=kind).double()
        for _ in range(2):  # shrunk to the covariance of the same embeddings: no change
            found = objective([clouds], ZEROS)
            assert found.item() == pytest.approx(float(expected), abs=1e-6)
            objective.observe([clouds], ZEROS)


def test_spectral_is_the_explained_variance_of_scikit_learn():
    x = correlated(200, 12)
    share = PCA(4, svd_solver="full").fit(x.numpy()).explained_variance_ratio_.sum()
    assert spectral(x, 4).item() == pytest.approx(share, abs=1e-12)


def test_koleo_has_the_neighbours_of_scikit_learn():
    x = normal(700, 24)
    unit = torch.nn.functional.normalize(x, dim=1).numpy()
    distance = NearestNeighbors(n_neighbors=2).fit(unit).kneighbors(unit)[0][:, 1]
    assert koleo(x).item() == pytest.approx(-np.log(distance + 1e-8).mean(), abs=1e-10)


@pytest.mark.parametrize(("n", "d"), [(9, 4), (4, 9)])
def test_barlow_is_the_correlation_of_batch_normalised_views(n, d):
    x, y = normal(n, d, seed=n), normal(n, d, seed=n + 1)
    batch_norm = torch.nn.BatchNorm1d(d, affine=False).double()
    difference = (batch_norm(x).T @ batch_norm(y) / n - torch.eye(d)).square()
    expected = 0.025 * (difference.trace() + 5e-3 * (difference.sum() - difference.trace()))
    assert barlow(x, y).item() == pytest.approx(expected.item(), rel=1e-11)
