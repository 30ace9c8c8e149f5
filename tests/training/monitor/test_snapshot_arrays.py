"""Spectrum, map and clusters of a snapshot against numpy and sklearn, and those of a run.

N rows, D width, M rows of the map, S eigenvalues.
"""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from isotrain.runs.snapshots import read_snapshots
from isotrain.training.monitor import callback
from isotrain.training.monitor.snapshot_arrays import N_CLUSTERS, cloud_arrays
from tests.dev_rows import NO_WORD, dev_passes, monitor_of, rows_of, validated

light = settings(max_examples=25)


def cloud(n, d, seed=0, scale=1.0, offset=0.0, dtype=torch.float32):
    """Directions of clearly different spread, so that the two leading ones are certain."""
    generator = torch.Generator().manual_seed(seed)
    spread_D = 2.0 ** -torch.arange(d, dtype=torch.float64)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * spread_D
    turned = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0]
    return (scale * (x @ turned + offset)).to(dtype)


def up_to_sign(found, expected, tolerance):
    for column in range(2):
        one, two = found[:, column], expected[:, column]
        sign = 1.0 if np.dot(one, two) >= 0 else -1.0
        np.testing.assert_allclose(sign * one, two, atol=tolerance)


@given(
    st.sampled_from([(40, 5), (5, 40), (8, 8), (200, 16), (16, 200), (3, 2), (2, 7)]),
    st.sampled_from([1.0, 1e-6, 1e5]),
    st.floats(-3, 3),
    st.integers(0, 50),
)
@light
def test_spectrum_and_map_are_those_of_numpy_and_sklearn(shape, scale, offset, seed):
    n, d = shape
    x = cloud(n, d, seed, scale, offset)
    found = cloud_arrays(x, 12, clusters=False)
    points = x.double().numpy()
    expected = np.linalg.eigvalsh(np.cov(points.T))[::-1][: min(n - 1, d)]
    assert set(found) == {"spectrum", "map"}
    assert found["spectrum"].dtype == found["map"].dtype == torch.float32
    np.testing.assert_allclose(found["spectrum"], expected, rtol=2e-6, atol=2e-6 * expected[0])
    pca = PCA(n_components=2, svd_solver="full").fit(points)
    rms = np.sqrt(expected[0])
    shown = pca.transform(points)[:12]
    shown = shown if n > 2 else np.stack([shown[:, 0], np.zeros(2)], axis=1)  # one direction
    assert found["map"].shape == (min(n, 12), 2)
    up_to_sign(found["map"].numpy(), shown, 1e-4 * rms)


@pytest.mark.parametrize("n", [2, 5, 8, 30, 512])
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_clusters_are_a_fixed_point_of_k_means(n, offset):
    """Each row is nearest to the mean of its cluster, of the rows on the map alone."""
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n + 40, 6, generator=generator) + offset
    found = cloud_arrays(x, n, clusters=True)["cluster"]
    assert found.dtype == torch.int16
    assert found.shape == (n,)
    assert 0 <= int(found.min()) <= int(found.max()) < N_CLUSTERS
    points, cluster = x[:n].double().numpy(), found.numpy()
    used = np.unique(cluster)
    means = np.stack([points[cluster == k].mean(axis=0) for k in used])
    square = ((points[:, None] - means) ** 2).sum(axis=-1)
    own = square[np.arange(n), np.searchsorted(used, cluster)]
    assert (own <= square.min(axis=1) + 1e-3).all()
    assert len(used) == min(n, N_CLUSTERS)


# --- in a run ----------------------------------------------------------------------------------

LAYER = (
    *("isotropy=cluster_pca", "isotropy.n_clusters=2", "metric=[isoscore]"),
    *("monitor.max_rows=60", "monitor.map_rows=24", "data.eval_batch_size=7"),
)


def snapshot_of(experiment):
    validated(experiment)
    (arrays,) = read_snapshots(monitor_of(experiment).folder).values()
    return arrays


@pytest.mark.parametrize(
    "task",
    [
        ("task=rte", "site=[layer_1,pooled]"),
        ("task=stsb", "task.form=bi", "pooling=mean", "site=[tokens,pooled]"),
    ],
    ids=["cross", "bi"],
)
def test_every_array_that_is_documented_and_no_other(built, task):
    experiment = built(*LAYER, *task)
    arrays = snapshot_of(experiment)
    passes = dev_passes(experiment)
    clouds = rows_of(passes, 60)
    words = Counter(
        int(word)
        for batch, _ in passes
        for word in batch.input_ids[batch.attention_mask.bool()].tolist()
    )
    expected = set()
    for place, rows in clouds.items():
        where, view = place.split("/")
        group = f"{where}_site" if view in ("before", "after") else view
        of_words = bool((rows.words != NO_WORD).all())
        expected |= {f"{kind}/{place}" for kind in ("n_rows", "spectrum", "map")}
        expected |= {f"label/{group}", f"index/{group}"}
        expected |= {f"token/{group}", f"frequency/{group}"} if of_words else set()
        expected |= {f"cluster/{place}"} if of_words or group.endswith("_site") else set()
        assert arrays[f"n_rows/{place}"].shape == ()
        assert arrays[f"n_rows/{place}"] == len(rows.x)
        assert arrays[f"n_rows/{place}"].dtype == np.int64
        assert arrays[f"label/{group}"].dtype == np.float32
        np.testing.assert_allclose(arrays[f"label/{group}"], rows.labels[:24], rtol=1e-6)
        assert arrays[f"index/{group}"].dtype == np.int64
        assert arrays[f"index/{group}"].tolist() == (rows.ids[:24] // 2**20).tolist()
        if of_words:
            texts = experiment.module.model.encoder.tokenizer.convert_ids_to_tokens(
                rows.words[:24].tolist()
            )
            assert arrays[f"token/{group}"].tolist() == texts
            counted = [words[int(word)] for word in rows.words[:24]]
            assert arrays[f"frequency/{group}"].tolist() == counted
            assert arrays[f"frequency/{group}"].dtype == np.int64
        if place == "layer_00/cls":  # one and the same row: no scatter
            expected -= {f"spectrum/{place}", f"map/{place}"}
            continue
        points = rows.x.double().numpy()
        spectrum = np.linalg.eigvalsh(np.cov(points.T))[::-1][: min(len(points) - 1, 16)]
        shown = arrays[f"spectrum/{place}"]
        assert shown.dtype == arrays[f"map/{place}"].dtype == np.float32
        np.testing.assert_allclose(shown, spectrum, rtol=1e-4, atol=1e-4 * spectrum[0])
        assert arrays[f"map/{place}"].shape == (24, 2)
        variance = PCA(n_components=2).fit(points).transform(points)[:24]
        up_to_sign(arrays[f"map/{place}"], variance, 1e-2 * np.sqrt(spectrum[0]))
    assert set(arrays) == expected


def test_a_diverged_layer_has_counts_and_no_picture(built):
    experiment = built(*LAYER, "task=rte")

    def broken(_model, _given, output):
        output.hidden_states[1][0, 0] = float("nan")

    model = experiment.module.model
    hook = model.register_forward_hook(lambda m, g, o: None if m.training else broken(m, g, o))
    arrays = snapshot_of(experiment)
    hook.remove()
    assert "map/layer_01/cls" not in arrays
    assert "spectrum/layer_01/cls" not in arrays
    assert arrays["n_rows/layer_01/cls"] == 32
    assert "map/layer_02/cls" in arrays


@pytest.mark.parametrize("fault", ["solver", "disk"])
def test_a_snapshot_that_fails_costs_no_run_and_is_reported_once(built, monkeypatch, fault):
    def fail(*_, **__):
        raise OSError("no space left") if fault == "disk" else RuntimeError("did not converge")

    name = "write_snapshot" if fault == "disk" else "snapshot_of"
    monkeypatch.setattr(callback, name, fail)
    experiment = built("task=rte", "metric=[isoscore]")
    with pytest.warns(UserWarning, match="no more snapshots are taken"):
        assert "isotropy/isoscore/layer_02/tokens" in validated(experiment)
    validated(experiment)
