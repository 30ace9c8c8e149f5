"""Vectors that are given as files are measured in place of an encoder."""

import numpy as np
import pytest
import torch

from isotrain.analysis.clusters.analysis import Clusters, open_vectors, sample_vectors
from isotrain.tasks.data.sources import HubSource
from tests.analysis.runs import records_of, subject_on

TOKENS = ["the", "dog", ",", "the", "cat", "."]
SMALL = {"max_rows": 200, "k_max": 4, "n_neighbors": 10, "map_rows": 50}


class NoEncoder:
    """Refuses whatever else is asked of it."""

    max_positions = 8

    def __getattr__(self, name):
        raise AssertionError(f"{name} of the encoder was asked for")


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def npy(folder, values, tokens=TOKENS):
    np.save(folder / "x.npy", values)
    (folder / "x.txt").write_text("".join(f"{t}\n" for t in tokens), encoding="utf-8")
    return str(folder / "x.npy"), str(folder / "x.txt")


def test_one_layer_and_several(tmp_path):
    values = array(3, 6, 4)
    tokens, several_LND = open_vectors(*npy(tmp_path, values))
    assert tokens == TOKENS
    assert np.array_equal(several_LND, values)
    one = sample_vectors(*npy(tmp_path, values[1].astype(np.float64)), 6, 0)
    assert [*one.layers] == [0]
    assert one.rows(0).dtype == torch.float32
    assert sorted(one.rows(0).tolist()) == sorted(values[1].tolist())


def test_what_would_be_measured_wrong_is_refused(tmp_path):
    values = array(6, 4)
    with pytest.raises(ValueError, match=r"a line for each of the 6 vectors .* got 5 lines"):
        open_vectors(*npy(tmp_path, values, TOKENS[:5]))
    values[2, 1] = np.nan
    with pytest.raises(ValueError, match="vectors must be finite"):
        sample_vectors(*npy(tmp_path, values), 6, 0).rows(0)


def test_they_are_measured_in_place_of_the_encoder(tmp_path):
    words = [f"w{i % 30}" for i in range(150)] + [","] * 50
    values = array(2, 200, 8)
    file, tokens = npy(tmp_path, values, words)
    analysis = Clusters(vectors=file, tokens=tokens, **SMALL)
    assert not analysis.missing(HubSource())
    records = records_of(analysis, subject_on(NoEncoder(), HubSource(), tmp_path))
    sample = next(r for r in records if r["kind"] == "sample")
    assert "no encoder was used" in sample["text"]
    assert sample["n_rows"] == sample["n_tokens"] == 200
    assert sample["n_types"] == 31
    layers = [r for r in records if r["kind"] == "layer"]
    assert [r["layer"] for r in layers] == [0, 1]
    unit = values[1] / np.linalg.norm(values[1], axis=1, keepdims=True)
    slow = []
    for word in dict.fromkeys(words):
        own = unit[[w == word for w in words]]
        n = len(own)
        slow.append((np.square(own.sum(axis=0)).sum() - n) / (n * (n - 1)))
    assert layers[1]["s_intra"] == pytest.approx(np.mean(slow), abs=1e-6)
