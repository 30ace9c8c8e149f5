"""Label silhouette against scikit-learn."""

import pytest
import torch
from sklearn.metrics import silhouette_score

from isotrain.geometry.clusters import silhouette_values
from isotrain.metrics import label_silhouette as module
from isotrain.metrics.label_silhouette import label_silhouette
from tests.metrics.clouds import cloud


@pytest.mark.parametrize(("n", "d", "c"), [(4, 2, 2), (50, 3, 3), (20, 60, 2), (400, 16, 5)])
def test_equals_scikit_learn(n, d, c):
    labels = torch.arange(n) % c
    x = cloud(n, d, seed=n) + labels[:, None]
    expected = silhouette_score(x.numpy(), labels.numpy())
    assert label_silhouette(x, labels).item() == pytest.approx(expected, abs=1e-12)


def test_closed_form_on_a_line():
    x = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    expected = ((1 - 1 / 10.5) + (1 - 1 / 9.5)) / 2
    assert label_silhouette(x, torch.tensor([3, 3, 8, 8])).item() == pytest.approx(expected)


def test_subsample_is_of_its_size_seeded_and_close():
    n = 1_500
    labels = torch.arange(n) % 2
    x = cloud(n, 4, seed=1) + 2.0 * labels[:, None]
    everything = label_silhouette(x, labels).item()
    first = label_silhouette(x, labels, max_rows=500).item()
    assert first == label_silhouette(x, labels, max_rows=500).item()
    assert first != label_silhouette(x, labels, max_rows=500, seed=1).item()
    assert first != everything
    assert first == pytest.approx(everything, abs=0.03)
    assert label_silhouette(x, labels, max_rows=n).item() == everything
    assert label_silhouette(x, labels, max_rows=n, seed=9).item() == everything


def test_no_more_rows_are_measured_than_asked_for(monkeypatch):
    sizes = []

    def counted(x, labels):
        sizes.append((len(x), len(labels)))
        return silhouette_values(x, labels)

    monkeypatch.setattr(module, "silhouette_values", counted)
    x, labels = cloud(40, 3), torch.arange(40) % 2
    for max_rows in (10, 39, 40, 41):
        label_silhouette(x, labels, max_rows=max_rows)
    assert sizes == [(10, 10), (39, 39), (40, 40), (40, 40)]


def test_a_seed_is_not_another_one_some_rows_on(monkeypatch):
    kept = []

    def keeping(x, labels):
        kept.append(set(x[:, 0].long().tolist()))
        return silhouette_values(x, labels)

    monkeypatch.setattr(module, "silhouette_values", keeping)
    shift, n = 1 << 20, 1 << 18
    row = torch.arange(shift + n, dtype=torch.float64)
    for seed in (0, 1):
        label_silhouette(row[:, None], row.long() % 2, max_rows=500, seed=seed)
    tail = {i - shift for i in kept[0] if i >= shift}
    assert len(tail) > 50
    assert len(tail & kept[1]) < 3


def test_equal_rows_score_zero():
    x = torch.full((200, 5), 0.1)
    assert label_silhouette(x, torch.arange(200) % 2).item() == 0.0


def test_errors():
    x = cloud(6, 3)
    with pytest.raises(ValueError, match="N − 1"):
        label_silhouette(x, torch.arange(6))
    with pytest.raises(ValueError, match="max_rows must be at least 3, got 2"):
        label_silhouette(x, torch.arange(6) % 2, max_rows=2)
    with pytest.raises(ValueError, match="slice a score"):
        label_silhouette(x, torch.linspace(0.0, 5.0, 6) + 0.1)
    with pytest.raises(ValueError, match=r"\[N\] = \[6\]"):
        label_silhouette(x, torch.arange(5), max_rows=4)
    rare = torch.zeros(1_000)
    rare[0] = 1.0
    with pytest.raises(ValueError, match="two classes"):  # the rare class is not in the subsample
        label_silhouette(cloud(1_000, 2), rare, max_rows=5)
