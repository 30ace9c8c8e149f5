"""Metrics of collected embeddings equal the functions, over batches and processes."""

import inspect
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics import MetricCollection

from isotrain import label_silhouette, mean_cosine, partition
from isotrain.metrics.suite import find, needs
from isotrain.plugins import torchmetrics as plugin
from isotrain.plugins.torchmetrics import (
    LID,
    EmbeddingMetric,
    IsoScore,
    LabelSilhouette,
    MeanCosine,
    Partition,
)
from tests.processes import ROOT, on_ranks

FILES = {file.stem for file in (ROOT / "isotrain" / "metrics").glob("[a-z]*.py")} - {"suite"}
CLASSES = {
    name: value
    for name, value in vars(plugin).items()
    if inspect.isclass(value) and EmbeddingMetric in value.__bases__
}


def cloud(n=240, d=6):
    """Embeddings with a cone, and what metrics ask for."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator) * torch.arange(1.0, d + 1) + 2
    more = {"reference": x + 1, "positives": x + torch.randn(n, d, generator=generator)}
    return x, {**more, "labels": torch.arange(n) % 3, "groups": torch.arange(n) % 20}


def batches(x, more, size=50):
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        yield x[rows], {name: value[rows] for name, value in more.items()}


def test_every_metric_has_its_class():
    assert {name.lower() for name in CLASSES} == {name.replace("_", "") for name in FILES}


@pytest.mark.parametrize("name", sorted(FILES))
def test_batches_give_the_value_of_all_embeddings(name):
    made = {key.lower(): value for key, value in CLASSES.items()}[name.replace("_", "")]()
    x, more = cloud()
    for batch, inputs in batches(x, more):
        made.update(batch, **inputs)
    need = needs(made.function)
    options = {} if need == "rows" else {need: more[need]}
    torch.testing.assert_close(made.compute(), made.function(x, **options), rtol=0, atol=1e-6)
    assert made.function.__name__ in (name, find(name).__name__)


def test_options_are_those_of_the_function():
    x, _ = cloud()
    metric = Partition(signs="both", log=False)
    metric.update(x)
    assert metric.compute() == partition(x, log=False) != partition(x)
    with pytest.raises(ValueError, match="signs must be both or as_is, got 'one'"):
        Partition(signs="one")
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `sign`"):
        Partition(sign="both")
    with pytest.raises(ValueError, match="max_rows must be at least 2, got 1"):
        Partition(max_rows=1)


def test_what_a_function_needs_is_asked_for():
    x, more = cloud()
    with pytest.raises(ValueError, match=r"label_silhouette takes labels.*update\(x, labels="):
        LabelSilhouette().update(x)
    with pytest.raises(ValueError, match="3 for 240"):
        LabelSilhouette().update(x, labels=more["labels"][:3])


def sampled(max_rows, n, size):
    """The numbers that a metric keeps of n embeddings, in batches."""
    metric = MeanCosine(max_rows=max_rows)
    for (batch,) in zip(torch.arange(2.0 * n).reshape(n, 2).split(size), strict=False):
        metric.update(batch)
        assert sum(map(len, metric.x)) <= max_rows
    (kept,) = metric.x
    assert torch.equal(kept[:, 0].long(), 2 * metric.numbers[0])
    return sorted(metric.numbers[0].tolist())


@given(st.integers(2, 30), st.integers(1, 60), st.integers(1, 20))
def test_a_sample_is_the_same_in_any_batches(max_rows, n, size):
    kept = sampled(max_rows, n, size)
    assert kept == sampled(max_rows, n, n)
    assert len(kept) == min(n, max_rows)


def test_a_sample_is_uniform():
    """Of 20,000 embeddings 2,000: each tenth has about 200, sd 12.7."""
    counts = torch.tensor(sampled(2000, 20_000, 4096)).div(2000, rounding_mode="floor").bincount()
    assert len(counts) == 10
    assert (counts - 200).abs().max() < 5 * 12.7


def test_the_budget_reaches_a_function_that_has_one():
    x, more = cloud(300)
    metric = LabelSilhouette(max_rows=250)
    metric.update(x, labels=more["labels"])
    kept = metric.numbers[0].sort().values
    assert metric.options["max_rows"] == 250
    assert metric.compute() == label_silhouette(x[kept], more["labels"][kept], max_rows=250)


def test_a_collection_shares_embeddings_of_one_budget_alone():
    """The first batch fits both budgets: their states are equal then."""
    x, more = cloud()
    few = MeanCosine(max_rows=60)
    metrics = {"all": MeanCosine(), "few": few, "isoscore": IsoScore(), "ls": LabelSilhouette()}
    together = MetricCollection(dict(metrics))
    for batch, inputs in batches(x, more):
        together.update(batch, **inputs)
    values = together.compute()
    groups = [*map(sorted, together.compute_groups.values())]
    assert groups == [["all", "isoscore"], ["few"], ["ls"]]
    assert values["all"] == mean_cosine(x)
    for name, metric in metrics.items():
        alone = metric.clone()
        alone.reset()
        for batch, inputs in batches(x, more):
            alone.update(batch, **inputs)
        assert values[name] == alone.compute()


@pytest.mark.parametrize("max_rows", [None, 70])
def test_forward_reset_state_and_pickle(max_rows):
    x, _ = cloud()
    metric = MeanCosine(max_rows=max_rows)
    metric.persistent(True)
    for batch, _ in batches(x, {}):
        assert metric(batch) == mean_cosine(batch)
    value = metric.compute()
    other = MeanCosine(max_rows=max_rows)
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    again = pickle.loads(pickle.dumps(metric))
    assert again.compute() == value
    for copy in (other, again, metric):
        copy.update(x + 1)
    assert other.compute() == again.compute() == metric.compute() != value
    metric.reset()
    for batch, _ in batches(x, {}, 7):
        metric.update(batch)
    assert metric.compute() == value


def test_embeddings_are_kept_without_their_graph():
    metric = MeanCosine()
    metric.update(torch.randn(4, 3, requires_grad=True))
    assert not metric.x[0].requires_grad


def made():
    """Metrics that depend on which embeddings there are, and on their order."""
    few, order = MeanCosine(max_rows=50), LID(n_neighbors=9, max_queries=20)
    return {"all": MeanCosine(), "labels": LabelSilhouette(), "few": few, "order": order}


def values_of_a_rank(rank, x, labels):
    """Rows r, r + 2, … in batches of another size on each rank, and a metric without any on one."""
    metrics = made()
    for metric in metrics.values():
        mine = (x[rank::2].split(30 + 10 * rank), labels[rank::2].split(30 + 10 * rank))
        for batch, of_batch in zip(*mine, strict=True):
            metric.update(batch, labels=of_batch)
    metrics["only"] = IsoScore()
    metrics["only"].update(x if rank == 0 else x[:0])
    return {name: metric.compute() for name, metric in metrics.items()}


def test_two_processes_give_the_value_of_one(tmp_path):
    x, more = cloud(241)
    one = {**made(), "only": IsoScore()}
    for metric in one.values():
        metric.update(x, labels=more["labels"])
    values = {name: metric.compute() for name, metric in one.items()}
    assert on_ranks(values_of_a_rank, 2, tmp_path, x, more["labels"]) == [values, values]
