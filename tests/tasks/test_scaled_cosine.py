"""The scaled cosine of STS-B: the cosine at the start, its ranks for good, another loss."""

import pytest
import torch
from scipy.stats import spearmanr

from isotrain.model.heads import CosineHead, ScaledCosineHead
from isotrain.tasks.regression import Regression
from tests.parts import STSB
from tests.stopped_runs import finished

BI = ("task=stsb", "task.form=bi", "pooling=mean", "metric=[]", "cache_dir=null")


def pairs(n=50, seed=0):
    return torch.randn(n, 2, 8, generator=torch.Generator().manual_seed(seed))


def test_it_starts_as_the_cosine_and_keeps_its_ranks():
    head, cosine = ScaledCosineHead(), CosineHead()(pairs())
    assert torch.equal(head(pairs()), cosine)
    for a, b in ((-3.0, 2.0), (1.5, -0.5)):
        with torch.no_grad():
            head.log_scale.fill_(a)
            head.bias.fill_(b)
            found = head(pairs())
        torch.testing.assert_close(found, cosine * torch.tensor(a).exp() + b)
        assert spearmanr(found, cosine).statistic == pytest.approx(1.0)


def test_it_learns_the_scale_and_bias_of_the_labels():
    head, x = ScaledCosineHead(), pairs()
    label = 0.2 * CosineHead()(x)[:, 0] + 0.6
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=100)

    def closure():
        optimizer.zero_grad()
        loss = STSB(form="bi").loss(head(x), label)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert head.log_scale.exp().item() == pytest.approx(0.2, abs=1e-3)
    assert head.bias.item() == pytest.approx(0.6, abs=1e-3)


def test_the_other_heads_are_as_they_were():
    assert type(STSB(form="bi").build_head(8, 2)) is CosineHead
    assert isinstance(STSB(form="bi", scaled_cosine=True).build_head(8, 2), ScaledCosineHead)


def test_without_a_cosine_it_is_rejected():
    with pytest.raises(ValueError, match="scaled_cosine=true scales the cosine of form=bi"):
        Regression(form="cross", scaled_cosine=True)


def test_step_0_is_that_of_the_cosine(composed, small, tmp_path):
    line = (*small, *BI)
    _, plain, _ = finished(composed(*line, f"output_dir={tmp_path / 'plain'}"))
    scaled = (*line, "task.scaled_cosine=true", "training.head_lr_factor=10")
    _, records, state = finished(composed(*scaled, f"output_dir={tmp_path / 'scaled'}"))
    assert plain[0] == records[0]
    losses = [[row["val/loss"] for row in rows if "val/loss" in row] for rows in (plain, records)]
    assert losses[0][0] == losses[1][0]
    assert losses[0][-1] != losses[1][-1]
    assert state["model.head.bias"].abs() > 1e-3
