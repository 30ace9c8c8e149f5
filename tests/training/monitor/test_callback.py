"""The monitor's values are those of an offline measurement, within its budget."""

import pytest
import torch

from isotrain.training.failures import MemoryLimitError
from tests.dev_rows import monitor_of, validated

THREE = "metric=[isoscore,mean_cosine,partition]"


@pytest.mark.parametrize("n", [1, 2])
def test_one_row_is_counted_and_not_validated(built, n):
    experiment = built("task=rte", "monitor.max_rows=100000", THREE)
    experiment.data.examples["dev"] = experiment.data.examples["dev"][:n]
    values = validated(experiment)
    assert values["isotropy/n_rows/layer_00/cls"] == n
    assert values["isotropy/n_rows/pooled/after"] == n
    assert ("isotropy/isoscore/layer_00/cls" in values) == (n == 2)
    assert "isotropy/isoscore/layer_00/tokens" in values


def test_without_a_layer_a_site_is_measured_once(built):
    values = validated(built("task=rte", "isotropy=none", "site=[tokens]", THREE))
    assert not any("/tokens/before" in key for key in values)
    for name in ("isoscore", "mean_cosine", "partition"):
        # All tokens of the last layer: the same cloud, seen by the other view.
        after = values[f"isotropy/{name}/tokens/after"]
        assert after == pytest.approx(values[f"isotropy/{name}/layer_02/tokens"], rel=1e-6)


def test_a_metric_that_rejects_a_cloud_is_left_out_and_reported_once(built):
    experiment = built("task=rte", "metric=[isoscore,lid]")  # 32 rows of dev, lid needs 101
    with pytest.warns(UserWarning, match=r"isotropy/lid is left out.*layer_00/cls.*n_neighbors"):
        values = validated(experiment)
    assert "isotropy/isoscore/layer_00/cls" in values
    assert "isotropy/lid_value/layer_00/cls" not in values
    assert "isotropy/lid_value/layer_00/tokens" in values
    validated(experiment)  # reported once: a second warning would be an error here


def raises(error):
    def metric(x):
        raise error

    return metric


@pytest.mark.parametrize(
    ("metric", "named"),
    [
        (raises(KeyError("mine")), r"KeyError: 'mine' \(.*test_callback.py"),
        (raises(RuntimeError("mine")), "RuntimeError: mine"),
        (lambda x: None, "TypeError: .*NoneType"),
    ],
)
def test_a_metric_that_fails_is_left_out_and_its_error_is_named(built, metric, named):
    experiment = built("task=rte", "metric=[isoscore,mean_cosine]")
    monitor_of(experiment).measure.metrics["isoscore"] = metric
    with pytest.warns(UserWarning, match=f"isotropy/isoscore failed and is left out.*{named}"):
        values = validated(experiment)
    assert "isotropy/mean_cosine/layer_00/tokens" in values
    assert "isotropy/isoscore/layer_00/tokens" not in values
    validated(experiment)  # warned of once


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_a_metric_without_memory_is_not_undefined(built, error):
    experiment = built("task=rte", "metric=[isoscore]")
    monitor_of(experiment).measure.metrics["isoscore"] = raises(error)
    with pytest.raises(MemoryLimitError, match=r"metric\.isoscore is out of memory.*max_rows"):
        validated(experiment)


def test_all_metrics_of_one_cloud_share_one_spectrum(built, monkeypatch):
    experiment = built(
        "task=rte", "metric=[effective_rank,spectral_entropy,stable_rank]", "monitor.map_rows=0"
    )
    counted = []
    eigvalsh = torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda x: counted.append(1) or eigvalsh(x))
    values = validated(experiment)
    clouds = {key.split("/", 2)[2] for key in values}
    assert len(counted) == len(clouds) - 1  # every CLS of layer 0 is the same row: no spectrum
