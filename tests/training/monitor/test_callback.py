"""The monitor's values are those of an offline measurement, within its budget."""

from __future__ import annotations

import pytest
import pytorch_lightning as pl
import torch

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.metrics.scatter_ratio import scatter_ratio
from isotrain.training.monitor.callback import IsotropyMonitor
from isotrain.training.monitor.measurement import Measurement

METRICS = {"isoscore": isoscore, "mean_cosine": mean_cosine, "partition": partition}
THREE = "metric=[isoscore,mean_cosine,partition]"
LAYER = (
    "task=wic",
    THREE,
    "isotropy=cluster_pca",
    "isotropy.n_clusters=2",
    "site=[layer_1,tokens,pooled]",
    "monitor.max_rows=100000",
)


def monitor_of(experiment):
    (monitor,) = (c for c in experiment.trainer.callbacks if isinstance(c, IsotropyMonitor))
    return monitor


def measured(experiment):
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    newest = monitor_of(experiment).newest
    return {key: value for key, value in newest.items() if key.startswith("isotropy/")}


def offline(experiment):
    """Every cloud of dev by place, from plain forward passes."""
    model, clouds = experiment.module.model.eval(), {}
    with torch.no_grad():
        for batch in experiment.data.val_dataloader():
            output = model(batch)
            real = batch.attention_mask.bool()
            parts = {}
            for layer, hidden in enumerate(output.hidden_states):
                parts[f"layer_{layer:02d}/cls"] = hidden[:, 0]
                parts[f"layer_{layer:02d}/tokens"] = hidden[real]
                sums = (hidden.double() * real[..., None]).sum(dim=1)
                parts[f"layer_{layer:02d}/mean"] = (sums / real.sum(dim=1, keepdim=True)).float()
            for site, (before, after, *_) in output.site_embeddings.items():
                parts[f"{site}/before"], parts[f"{site}/after"] = before, after
            for place, rows in parts.items():
                clouds.setdefault(place, []).append(rows)
    return {place: torch.cat(rows) for place, rows in clouds.items()}


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_values_are_those_of_an_offline_measurement(built, form):
    experiment = built(*LAYER, f"task.form={form}", "pooling=spans", "task.prompt=none")
    values = measured(experiment)
    clouds = offline(experiment)
    assert len(clouds) == 3 * 3 + 2 * 3
    expected = {
        f"isotropy/{name}/{place}": float(metric(rows))
        for place, rows in clouds.items()
        for name, metric in METRICS.items()
    }
    expected |= {f"isotropy/n_rows/{place}": len(rows) for place, rows in clouds.items()}
    assert set(values) == set(expected)
    assert values == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert len(clouds["layer_00/cls"]) == 32 * (2 if form == "bi" else 1)
    assert len(clouds["pooled/before"]) == 32 * 2  # two target words a row
    assert values["isotropy/isoscore/tokens/before"] != values["isotropy/isoscore/tokens/after"]


def test_values_do_not_depend_on_the_batch_size(built):
    budget = "monitor.max_rows=50"  # fewer than the tokens: the choice of rows counts too
    four = measured(built(*LAYER, budget, "data.eval_batch_size=4"))
    sixteen = measured(built(*LAYER, budget, "data.eval_batch_size=16"))
    assert four == pytest.approx(sixteen, rel=1e-5, abs=1e-5)
    assert four["isotropy/n_rows/layer_00/tokens"] == 50


class Held(pl.Callback):
    """Bytes that the monitor holds when an evaluation ends."""

    def __init__(self, monitor):
        self.monitor, self.n_bytes = monitor, 0

    def on_validation_epoch_end(self, trainer, pl_module):
        """Runs before the monitor, which lets go of its rows."""
        self.n_bytes = self.monitor._rows.n_bytes


def budget_bytes(max_rows):
    """The formula of the README for D = 16, L = 2, three views and three sites.

    And id, hash and label of each of those six groups, 8 bytes each, and the token ids of three.
    """
    return max_rows * 16 * 4 * (3 * (2 + 1) + 2 * 3) + max_rows * 8 * (3 * 6 + 3)


@pytest.mark.parametrize("max_rows", [7, 20, 100_000])
def test_the_budget_is_kept(built, max_rows):
    experiment = built(*LAYER, f"monitor.max_rows={max_rows}")
    held = Held(monitor_of(experiment))
    experiment.trainer.callbacks.insert(0, held)
    values = measured(experiment)
    counts = {key: n for key, n in values.items() if "/n_rows/" in key}
    assert len(counts) == 3 * 3 + 2 * 3
    budget = budget_bytes(max_rows)
    if max_rows < 32:
        assert set(counts.values()) == {max_rows}
        assert held.n_bytes == budget
    else:
        assert counts["isotropy/n_rows/layer_00/cls"] == 32
        assert 0 < held.n_bytes < budget
    assert held.monitor._rows is None  # let go of


def test_the_budget_chooses_equal_rows_at_every_evaluation(built):
    experiment = built(*LAYER, "monitor.max_rows=9")
    assert measured(experiment) == measured(experiment)


@pytest.mark.parametrize("n", [1, 2])
def test_one_row_is_counted_and_not_measured(built, n):
    experiment = built("task=rte", "monitor.max_rows=100000", THREE)
    experiment.data.examples["dev"] = experiment.data.examples["dev"][:n]
    values = measured(experiment)
    assert values["isotropy/n_rows/layer_00/cls"] == n
    assert values["isotropy/n_rows/pooled/after"] == n
    assert ("isotropy/isoscore/layer_00/cls" in values) == (n == 2)
    assert "isotropy/isoscore/layer_00/tokens" in values


def test_a_metric_of_several_numbers_gets_a_key_for_each(built):
    experiment = built("task=rte")
    monitor_of(experiment).measure = Measurement(
        {"pair": lambda x: {"one": x.sum().double(), "two": x.mean().double()}}
    )
    values = measured(experiment)
    assert "isotropy/pair_one/layer_02/tokens" in values
    assert "isotropy/pair_two/pooled/after" in values


def test_without_a_layer_a_site_is_measured_once(built):
    values = measured(built("task=rte", "isotropy=none", "site=[tokens]"))
    assert not any("/tokens/before" in key for key in values)
    for name in METRICS:
        # All tokens of the last layer: the same cloud, seen by the other view.
        after = values[f"isotropy/{name}/tokens/after"]
        assert after == pytest.approx(values[f"isotropy/{name}/layer_02/tokens"], rel=1e-6)


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_label_geometry_is_that_of_an_offline_measurement(built, form):
    parts = ("pooling=spans", "task.prompt=none", "metric=[isoscore,scatter_ratio]")
    experiment = built(*LAYER, f"task.form={form}", *parts, "data.eval_batch_size=5")
    values = measured(experiment)
    clouds, labels = offline(experiment), {}
    for batch in experiment.data.val_dataloader():
        by_sequence = batch.labels.repeat(batch.n_sequences)
        tokens = by_sequence[:, None].expand_as(batch.input_ids)
        for name, found in (
            ("cls", by_sequence),
            ("tokens", tokens[batch.attention_mask.bool()]),
            ("pooled", batch.labels.repeat_interleave(2)),
        ):
            labels.setdefault(name, []).append(found)
    labels = {name: torch.cat(found) for name, found in labels.items()}
    for place in ("layer_02/cls", "layer_01/tokens", "pooled/before", "pooled/after"):
        name = "pooled" if "pooled" in place else place.split("/")[1]
        expected = scatter_ratio(clouds[place], labels[name].long())
        found = {part: values[f"isotropy/scatter_ratio_{part}/{place}"] for part in expected}
        assert found == pytest.approx({k: float(v) for k, v in expected.items()}, rel=1e-5)


def test_scores_are_measured_as_five_classes(built):
    experiment = built("task=stsb", "metric=[scatter_ratio]", "monitor.max_rows=100000")
    values = measured(experiment)
    rows = offline(experiment)["layer_02/cls"]
    scores = torch.cat([batch.labels for batch in experiment.data.val_dataloader()])
    bounds = torch.quantile(scores, torch.tensor([0.2, 0.4, 0.6, 0.8]))
    expected = scatter_ratio(rows, torch.bucketize(scores, bounds))
    found = values["isotropy/scatter_ratio_share/layer_02/cls"]
    assert found == pytest.approx(float(expected["share"]), rel=1e-5)


def test_a_metric_that_refuses_a_cloud_is_left_out_and_told_once(built):
    experiment = built("task=rte", "metric=[isoscore,lid]")  # 32 rows of dev, lid needs 101
    with pytest.warns(UserWarning, match=r"isotropy/lid is left out.*layer_00/cls.*n_neighbors"):
        values = measured(experiment)
    assert "isotropy/isoscore/layer_00/cls" in values
    assert "isotropy/lid_value/layer_00/cls" not in values
    assert "isotropy/lid_value/layer_00/tokens" in values
    measured(experiment)  # told once: a second warning would be an error here


def test_all_metrics_of_one_cloud_share_one_spectrum(built, monkeypatch):
    experiment = built(
        "task=rte", "metric=[effective_rank,spectral_entropy,stable_rank]", "monitor.map_rows=0"
    )
    counted = []
    eigvalsh = torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda x: counted.append(1) or eigvalsh(x))
    values = measured(experiment)
    clouds = {key.split("/", 2)[2] for key in values}
    assert len(counted) == len(clouds) - 1  # every CLS of layer 0 is the same row: no spectrum
