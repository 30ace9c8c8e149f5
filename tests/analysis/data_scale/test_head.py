"""The head: what it learns, when it stops, and what it never sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegressionCV

from isotrain.analysis.data_scale import head as scale_head
from isotrain.analysis.data_scale.features import Features
from isotrain.analysis.data_scale.head import train_head


def rows(x_ND):
    return Features(x_ND, torch.arange(len(x_ND))[:, None], is_pair=False)


def cloud(n, d=20, seed=0):
    """Two overlapping classes along a direction, with scales and offsets all over the place."""
    generator = torch.Generator().manual_seed(seed)
    label_N = torch.arange(n) % 2
    z_ND = torch.randn(n, d, generator=generator)
    z_ND[:, :3] += 0.7 * (2 * label_N[:, None] - 1)
    return z_ND * torch.logspace(-3, 3, d) + torch.linspace(-50, 50, d), label_N


def trained(x_ND, label_N, n_fit, n_held, **options):
    plain = {"n_classes": 2, "hidden": 0, "seed": 0}
    fit_n, held_n = torch.arange(n_fit), torch.arange(n_fit, n_fit + n_held)
    return train_head(rows(x_ND), label_N, fit_n, held_n, **(plain | options))


def accuracy(head, x_ND, label_N, start):
    row_n = torch.arange(start, len(x_ND))
    return float((head.classes(rows(x_ND), row_n) == label_N[row_n]).float().mean())


@pytest.mark.parametrize("n", [50, 400, 2000])
def test_it_scores_as_penalised_logistic_regression(n):
    x, y = cloud(n + 4000)
    n_held = n // 5
    found = accuracy(trained(x, y, n - n_held, n_held), x, y, n)
    z = ((x - x[:n].mean(dim=0)) / x[:n].std(dim=0)).numpy()
    other = LogisticRegressionCV(
        Cs=np.logspace(-4, 2, 7),
        cv=5,
        l1_ratios=(0,),
        use_legacy_attributes=False,
        scoring="neg_log_loss",
    ).fit(z[:n], y[:n])
    expected = float((other.predict(z[n:]) == y[n:].numpy()).mean())
    assert found == pytest.approx(expected, abs=0.025 if n > 50 else 0.05)
    assert found > 0.75


def test_hidden_units_learn_what_no_line_can():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1500, 2, generator=generator)
    y = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).long()
    assert accuracy(trained(x, y, 800, 200), x, y, 1000) < 0.75
    assert accuracy(trained(x, y, 800, 200, hidden=32), x, y, 1000) > 0.8


def test_scales_and_offsets_of_features_change_nothing():
    x, y = cloud(600)
    first, second = (
        trained(one, y, 200, 50).classes(rows(one), torch.arange(600)) for one in (x, x * 8 + 64)
    )
    assert (first == second).float().mean() > 0.99
    assert (first == y).float().mean() > 0.7


def test_moments_and_weights_come_from_the_rows_of_training_alone():
    x, y = cloud(300)
    plain = trained(x, y, 200, 50)
    assert torch.allclose(plain.mean_F, x[:200].mean(dim=0), rtol=1e-4, atol=1e-4)
    x[250:] = 1e6  # scored rows
    y[250:] = 0
    again = trained(x, y, 200, 50)
    assert torch.equal(plain.network.weight, again.network.weight)
    assert torch.equal(plain.sd_F, again.sd_F)


def test_it_keeps_the_epoch_of_the_least_held_out_loss(monkeypatch):
    x, y = cloud(400)
    y[torch.arange(0, 400, 3)] ^= 1  # labels that are hard to learn
    head = trained(x, y, 120, 40)
    assert head.stopped == "patience"
    losses = []
    for n_epochs in range(1, head.n_epochs + 1):
        monkeypatch.setattr(scale_head, "MOST_EPOCHS", n_epochs)
        short = trained(x, y, 120, 40)
        losses.append(held_loss(short, x, y, 120, 160))
        assert short.stopped == ("cap" if n_epochs < head.n_epochs else "patience")
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1] == held_loss(head, x, y, 120, 160)
    # Five epochs together brought little; the five that end one before them more.
    assert losses[-1] > losses[-1 - scale_head.PATIENCE] - scale_head.SETTLED
    assert losses[-2] < losses[-2 - scale_head.PATIENCE] - scale_head.SETTLED


def held_loss(head, x_ND, label_N, start, stop):
    z_nD = (x_ND[start:stop] - head.mean_F) / head.sd_F
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(head.network(z_nD), label_N[start:stop]))


def tokens(n, f, n_classes=9, seed=0):
    """Rows as of words: few directions hold most variance, and one class most rows."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.tensor([0.8] + [0.2 / (n_classes - 1)] * (n_classes - 1))
    label_N = torch.multinomial(share, n, replacement=True, generator=generator)
    z_NF = torch.randn(n, f, generator=generator)
    z_NF[:, :64] += 0.4 * torch.randn(n_classes, 64, generator=generator)[label_N]
    x_NF = z_NF * torch.arange(1.0, f + 1) ** -0.5
    for _ in range(3):  # turned, so that no feature is a direction of its own
        normal_F = torch.nn.functional.normalize(torch.randn(f, generator=generator), dim=0)
        x_NF -= 2 * (x_NF @ normal_F)[:, None] * normal_F
    return x_NF, label_N


def test_of_many_words_patience_ends_the_training_and_more_of_them_score_better():
    x, y = tokens(4000, 1024)
    scores = []
    for n in (500, 2000):
        head = trained(x, y, n, n // 4, n_classes=9)
        assert head.stopped == "patience"
        assert head.n_epochs < scale_head.MOST_EPOCHS / 2
        scores.append(accuracy(head, x, y, 2500))
    assert scores[1] > scores[0] + 0.01


def test_where_nothing_that_is_learned_helps_it_stops_at_once():
    x, y = cloud(60)
    y[48:] = 1 - y[48:]
    assert trained(x, y, 48, 12).n_epochs == 1 + scale_head.PATIENCE


def test_classes_that_a_plane_parts_end_by_patience_too():
    x, y = cloud(300)
    x[:, 0] = (2 * y - 1) * 1e-3
    head = trained(x, y, 200, 50)
    assert head.stopped == "patience"
    assert head.n_epochs < scale_head.MOST_EPOCHS / 2
    assert accuracy(head, x, y, 250) == 1


def test_a_constant_feature_does_no_harm():
    x, y = cloud(300)
    x[:, 5] = 7.25
    head = trained(x, y, 200, 50)
    assert bool(torch.isfinite(head.network.weight).all())
    assert head.sd_F[5] == 1
    assert accuracy(head, x, y, 250) > 0.7


@pytest.mark.parametrize("hidden", [0, 4])
def test_the_seed_decides_and_the_global_random_state_stays(hidden):
    x, y = cloud(200)
    torch.manual_seed(5)
    first = trained(x, y, 100, 20, hidden=hidden)
    expected = torch.rand(2)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(2), expected)
    weights = [
        next(trained(x, y, 100, 20, hidden=hidden, seed=seed).network.parameters())
        for seed in (0, 1)
    ]
    assert torch.equal(weights[0], next(first.network.parameters()))
    assert not torch.equal(weights[0], weights[1])
