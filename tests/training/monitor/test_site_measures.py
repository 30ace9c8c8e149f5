"""What a layer did to the rows of an evaluation: closed forms, and what the monitor logs of it.

N rows, D width, M rows of a queue.
"""

import math

import numpy as np
import pytest
import torch

from isotrain.geometry.rows import row_ids
from isotrain.training.monitor.measurement import Measurement, site_measures
from isotrain.training.monitor.sampling import SampledCloud
from isotrain.transforms.base import RowTransform
from tests.dev_rows import monitor_of

LAYER = (
    "metric=[isoscore]",
    "isotropy=cluster_pca",
    "isotropy.n_clusters=2",
    "isotropy.n_components=1",
    "monitor.max_rows=100000",
)
MEASURES = {"energy_kept", "label_scatter_removed", "queue_gap", "queue_spread"}


def cloud(n=40, d=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(n, d, generator=generator, dtype=torch.float64) + seed).to(dtype)


def between(x, classes):
    """The share of the scatter that is between classes, by a loop."""
    points, mean = x.double().numpy(), x.double().numpy().mean(axis=0)
    groups = [points[classes == c] for c in np.unique(classes)]
    scatter = sum(len(g) * ((g.mean(axis=0) - mean) ** 2).sum() for g in groups)
    return scatter / ((points - mean) ** 2).sum()


def rms(x):
    return math.sqrt(np.cov(x.double().numpy().T, ddof=0).trace())


def by_hand(before, after, classes, queue):
    gap = np.linalg.norm(queue.numpy().mean(axis=0) - before.numpy().mean(axis=0))
    return {
        "energy_kept": rms(after) ** 2 / rms(before) ** 2,
        "label_scatter_removed": 1.0 - between(after, classes) / between(before, classes),
        "queue_gap": gap / rms(before),
        "queue_spread": rms(queue) / rms(before),
    }


# --- closed forms -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_four_against_numpy(dtype):
    before, after, queue = (cloud(seed=s, dtype=dtype) for s in (1, 2, 3))
    labels = torch.arange(40) % 3
    found = site_measures(before, after, labels, queue)
    expected = by_hand(before.double(), after.double(), labels.numpy(), queue.double())
    assert {name: float(v) for name, v in found.items()} == pytest.approx(expected, rel=1e-6)
    assert list(found) == [*expected]


def test_the_label_is_wholly_removed_kept_or_moved_apart():
    labels = torch.arange(40) % 2
    x = cloud() + 4.0 * labels[:, None]
    means = torch.stack([x[labels == c].mean(dim=0) for c in (0, 1)])
    share = between(x, labels.numpy())
    twice = x + means[labels] - x.mean(dim=0)  # classes twice as far apart, as spread as before
    for after, expected in (
        (x - means[labels], 1.0),
        (x, 0.0),
        (x + 3.0, 0.0),
        (0.5 * x, 0.0),  # everything shrinks alike
        (twice, 1.0 - 4.0 / (4.0 * share + 1.0 - share)),
        (means[labels], 1.0 - 1.0 / share),
    ):
        found = site_measures(x, after, labels, None)
        assert float(found["label_scatter_removed"]) == pytest.approx(expected, abs=1e-9)


# --- what is not finite, or not defined -------------------------------------------------------


def test_a_row_that_is_not_finite_on_either_side_is_left_out_with_its_label():
    before, after, queue = (cloud(seed=s) for s in (1, 2, 3))
    labels = torch.arange(40) % 2
    labels[:2] = 7  # would be a class of its own
    expected = by_hand(before[2:], after[2:], labels[2:].numpy(), queue[1:])
    before[0, 1], after[1, 3], queue[0, 0] = float("nan"), float("inf"), float("nan")
    found = site_measures(before, after, labels, queue)
    assert {name: float(v) for name, v in found.items()} == pytest.approx(expected)


@pytest.mark.parametrize("n", [0, 1, 6])
def test_without_scatter_there_is_nothing_to_say(n):
    equal = torch.ones(n, 3)
    assert site_measures(equal, equal, torch.arange(n) % 2, cloud(4, 3)) == {}
    lost = torch.full((4, 3), float("nan"))
    assert site_measures(lost, cloud(4, 3), None, None) == {}
    assert site_measures(cloud(4, 3), lost, None, None) == {}


def test_what_is_not_defined_is_left_out():
    x = cloud()
    assert set(site_measures(x, x, torch.zeros(40), None)) == {"energy_kept"}
    assert set(site_measures(x, torch.ones(40, 5), torch.arange(40) % 2, None)) == {"energy_kept"}
    assert set(site_measures(x, x, None, x[:0])) == {"energy_kept"}
    assert set(site_measures(x, x, None, torch.full((3, 5), torch.nan))) == {"energy_kept"}
    found = site_measures(x, x, None, x[:1])  # a queue of one row lies somewhere
    assert set(found) == {"energy_kept", "queue_gap", "queue_spread"}
    assert float(found["queue_spread"]) == 0.0


def test_a_metric_of_labels_gets_the_example_of_each_token():
    def seen(x, labels, examples=None):
        return (examples * torch.arange(1, 7)).sum()

    ids = row_ids(torch.tensor([3, 8]), 1, 3).flatten()
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    tokens = SampledCloud("layer_1", "tokens", cloud(6, 4), ids, labels, torch.arange(6))
    values = Measurement({"seen": seen})(tokens, None)
    assert values["seen"] == 3 * (1 + 2 + 3) + 8 * (4 + 5 + 6)


# --- in a run ---------------------------------------------------------------------------------


def logged(experiment):
    """`val/<site>/<name>` of one evaluation by the run's own trainer."""
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    values = monitor_of(experiment).newest
    parts = [key.split("/") for key in values]
    return {
        site: {name: values[f"val/{site}/{name}"] for _, site, name in of_site}
        for site in {part[1] for part in parts if len(part) == 3 and part[0] == "val"}
        if (of_site := [p for p in parts if len(p) == 3 and p[1] == site and p[2] in MEASURES])
    }


def offline(experiment, site):
    """The rows around a site and their labels, from plain forward passes."""
    model, rows = experiment.module.model.eval(), []
    with torch.no_grad():
        for batch in experiment.data.val_dataloader():
            rows.append((*model(batch).site_embeddings[site][:2], batch.labels))
    return [torch.cat(parts) for parts in zip(*rows, strict=True)]


@pytest.mark.parametrize("task", ["rte", "stsb"])
def test_a_run_logs_what_an_offline_pass_finds(built, task):
    # CLS embeddings of a random encoder are nearly equal: differences of theirs are rounding.
    options = (f"task={task}", "pooling=mean", "site=[pooled]", "data.eval_batch_size=5")
    experiment = built(*LAYER, *options)
    found = logged(experiment)
    before, after, labels = offline(experiment, "pooled")
    layer = experiment.module.model.transforms["pooled"]
    classes = labels.numpy()
    if task == "stsb":
        classes = np.searchsorted(np.quantile(classes, [0.2, 0.4, 0.6, 0.8]), classes)
    expected = by_hand(before, after, classes, layer.queue.rows())
    assert found == {"pooled": pytest.approx(expected, rel=1e-4, abs=1e-5)}
    assert 0.0 < found["pooled"]["energy_kept"] < 1.0


@pytest.mark.parametrize(
    ("overrides", "owned"),
    [
        (("task=rte", "site=[tokens,pooled,layer_1]"), {"pooled"}),
        (("task=rte", "task.form=bi", "pooling=mean", "site=[pooled]"), set()),
        (("task=wic", "pooling=spans", "task.prompt=none", "site=[pooled]"), set()),
        (("task=wic", "pooling=mean", "site=[pooled]"), {"pooled"}),
    ],
)
def test_label_scatter_only_where_a_row_owns_its_label(built, overrides, owned):
    found = logged(built(*LAYER, *overrides))
    sites = overrides[-1][len("site=[") : -1].split(",")
    assert set(found) == set(sites)
    for site, names in found.items():
        assert ("label_scatter_removed" in names) == (site in owned)
        assert set(names) >= MEASURES - {"label_scatter_removed"}


class Through(RowTransform):
    """One that leaves rows as they are, and says so."""

    changes_rows = False

    def forward(self, x_ND):
        return x_ND.clone()


@pytest.mark.parametrize("own", [{}, {"pooled": Through(32)}])
def test_a_site_without_a_layer_has_nothing_to_tell(built, own):
    """Before and after it is one cloud."""
    experiment = built("task=rte", "metric=[isoscore]", "isotropy=none", "site=[pooled]")
    experiment.module.model.transforms.update(own)
    assert logged(experiment) == {}
