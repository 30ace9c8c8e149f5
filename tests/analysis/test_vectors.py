"""Vectors that are given as files: reading, refusing, measuring them in place of an encoder."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isotrain.analysis.clusters.analysis import Clusters
from isotrain.analysis.vectors import open_vectors
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


def parquet(folder, row_group_size=None, **columns):
    file = folder / "x.parquet"
    pq.write_table(pa.table(columns), file, row_group_size=row_group_size)
    return str(file)


def test_npy_of_one_layer_and_of_several(tmp_path):
    values = array(3, 6, 4)
    several = open_vectors(*npy(tmp_path, values))
    assert several.tokens == TOKENS
    assert several.layers == [0, 1, 2]
    at = np.array([5, 0, 3])
    assert np.array_equal(several.rows(2, at), values[2][at])
    one = open_vectors(*npy(tmp_path, values[1].astype(np.float64)))
    assert one.layers == [0]
    assert np.array_equal(one.rows(0, at), values[1][at])
    assert one.rows(0, at).dtype == np.float32
    assert one.n_sentences(at) is None


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), "fixed"])
def test_parquet_rows_in_the_order_asked_for(kind, tmp_path):
    values = array(6, 4)
    vectors = pa.array(values.tolist(), pa.list_(pa.float32(), 4) if kind == "fixed" else kind)
    opened = open_vectors(parquet(tmp_path, row_group_size=4, token=TOKENS, vector=vectors))
    for at in ([5, 0, 3], [1], [0, 1, 2, 3, 4, 5]):
        assert opened.rows(0, np.array(at)) == pytest.approx(values[at])


def test_parquet_with_layers_sentences_and_another_column(tmp_path):
    values = array(12, 4)
    file = parquet(
        tmp_path,
        piece=[t for t in TOKENS for _ in range(2)],  # the layers of a token side by side
        layer=[1, 7] * 6,
        sentence=["a"] * 6 + ["b"] * 6,
        vector=values.tolist(),
    )
    opened = open_vectors(file, "piece")
    assert opened.tokens == TOKENS
    assert opened.layers == [1, 7]
    at = np.array([4, 0])
    assert opened.rows(7, at) == pytest.approx(values[1::2][at])
    assert opened.rows(1, at) == pytest.approx(values[::2][at])
    assert opened.n_sentences(at) == 2
    assert opened.n_sentences(np.array([0, 1])) == 1


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    good = array(6, 4)
    file, tokens = npy(tmp_path, good)
    cases = [
        ((str(tmp_path / "no.npy"), tokens), r"must be a \.npy or a \.parquet file"),
        ((tokens, tokens), r"must be a \.npy or a \.parquet file"),
        ((file, None), "needs analysis.tokens=FILE"),
        ((file, str(tmp_path / "no.txt")), "needs analysis.tokens=FILE"),
    ]
    for given, message in cases:
        with pytest.raises(ValueError, match=message):
            open_vectors(*given)
    for values, names, message in (
        (good[0], TOKENS, r"must be floats \[N, D\] or \[layers, N, D\], got float32 \[4\]"),
        (good.astype(int), TOKENS, "must be floats"),
        (good[:0], TOKENS, "must be floats"),
        (good, TOKENS[:5], "a line for each of the N = 6 vectors .* got 5 lines"),
        (good, [*TOKENS[:5], ""], "token 6 is empty"),
        (np.array([{}]), TOKENS, "dtype"),
    ):
        given = npy(tmp_path, values, names)
        with pytest.raises(ValueError, match=message):
            open_vectors(*given)


def test_columns_that_do_not_fit_are_refused(tmp_path):
    rows = array(6, 4).tolist()
    for columns, message in (
        ({"token": TOKENS}, "lacks the column vector; it has token"),
        ({"word": TOKENS, "vector": rows}, "lacks the column token; it has word, vector"),
        ({"token": [*TOKENS[:5], None], "vector": rows}, "token 6 is empty"),
        (
            {"token": TOKENS, "vector": rows, "layer": [0, 0, 0, 1, 1, 1]},
            "the same tokens in the same order",
        ),
    ):
        file = parquet(tmp_path, **columns)
        with pytest.raises(ValueError, match=message):
            open_vectors(file)
    (tmp_path / "y.parquet").write_text("no")
    with pytest.raises(ValueError, match="Parquet"):
        open_vectors(str(tmp_path / "y.parquet"))


@pytest.mark.parametrize(
    "vectors", [[[1.0, 2.0]] * 5 + [[1.0]], [["a", "b"]] * 6, [[1.0, 2.0]] * 5 + [None]]
)
def test_vectors_that_do_not_fit_are_refused_with_their_file(vectors, tmp_path):
    opened = open_vectors(parquet(tmp_path, token=TOKENS, vector=vectors))
    with pytest.raises(ValueError, match=r"vector of .*x\.parquet must be lists of floats, all of"):
        opened.rows(0, np.arange(6))


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
