"""Clouds that are no pairs, and labels that are not one each: refused by every loss of such."""

from __future__ import annotations

import pytest
import torch

from isotrain.objectives.alignment import alignment
from isotrain.objectives.angle import angle, angle_similarity
from isotrain.objectives.barlow import barlow
from isotrain.objectives.cosent import cosent
from isotrain.objectives.dcl import dcl
from isotrain.objectives.simcse import simcse
from isotrain.objectives.supcon import supcon
from isotrain.objectives.vicreg import vicreg

LABELS = torch.tensor([0, 1, 1])
OF_PAIRS = {
    "alignment": alignment,
    "angle": lambda x, y: angle(x, y, LABELS),
    "angle_similarity": angle_similarity,
    "barlow": barlow,
    "cosent": lambda x, y: cosent(x, y, LABELS),
    "dcl": dcl,
    "simcse": simcse,
    "vicreg": vicreg,
}
OF_LABELS = {
    "angle": lambda labels: angle(torch.eye(4), torch.eye(4).flip(0), labels),
    "cosent": lambda labels: cosent(torch.eye(4), torch.eye(4).flip(0), labels),
    "supcon": lambda labels: supcon(torch.eye(4), labels),
}


@pytest.mark.parametrize("loss", OF_PAIRS.values(), ids=OF_PAIRS)
@pytest.mark.parametrize("shape", [(1, 4), (4, 4), (3, 2), (3, 1), (4,), (3, 1, 4)])
def test_another_shape_of_the_second_cloud_is_refused(loss, shape):
    with pytest.raises(ValueError, match=r"one embedding for each, \(3, 4\), got"):
        loss(torch.eye(4)[:3], torch.ones(shape))


@pytest.mark.parametrize("loss", OF_PAIRS.values(), ids=OF_PAIRS)
@pytest.mark.parametrize("shape", [(0, 4), (4,), (3, 2, 4)])
def test_what_is_no_cloud_is_refused(loss, shape):
    with pytest.raises(ValueError, match=r"shape \[N, D\]|needs at least"):
        loss(torch.ones(shape), torch.ones(shape))


@pytest.mark.parametrize("loss", OF_LABELS.values(), ids=OF_LABELS)
@pytest.mark.parametrize("shape", [(3,), (5,), (4, 1), ()])
def test_labels_that_are_not_one_a_row_are_refused(loss, shape):
    with pytest.raises(ValueError, match=r"one for each embedding, \[4\], got"):
        loss(torch.ones(shape))


def test_supcon_refuses_what_is_no_cloud():
    with pytest.raises(ValueError, match=r"shape \[N, D\]"):
        supcon(torch.ones(2, 2, 2), torch.ones(2))
