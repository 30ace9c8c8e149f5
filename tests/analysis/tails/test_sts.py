"""STS by treatment: rank correlation with its interval, whitening of other sentences alone."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from isotrain.analysis.encode import hidden_states
from isotrain.analysis.probe import spearman
from isotrain.analysis.tails.analysis import sts_records
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.offline_isotropy.offline_rows import write
from tests.analysis.runs import subject_on


def test_the_interval_covers_the_truth():
    generator = np.random.default_rng(0)
    truth, n = 0.7, 150
    covariance = [[1.0, truth], [truth, 1.0]]
    rank_truth = 6 / np.pi * np.arcsin(truth / 2)  # of Gaussian pairs
    hits = 0
    for _ in range(400):
        x, y = generator.multivariate_normal([0, 0], covariance, n).T
        found = spearman(x, y)
        hits += found.low < rank_truth < found.high
    assert 0.92 < hits / 400 < 0.98


def test_what_is_not_defined_is_none():
    assert spearman([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]) == (None, None, None)
    assert spearman([1.0], [2.0]) == (None, None, None)
    perfect = spearman([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert perfect == (pytest.approx(1.0), None, None)


def lines(folder, name):
    text = (folder / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def source(tmp_path, data_dir):
    """STS-B, and an older set some pairs of which are in STS-B's train split, as they are."""
    for name in ("stsb/train", "stsb/dev", "stsb/test"):
        write(tmp_path / "data", *name.split("/"), lines(data_dir, name))
    write(tmp_path / "data", "sts12", "test", lines(data_dir, "stsb/train")[:40])
    return LocalSource(str(tmp_path / "data"))


def measured(encoder, source, folder, sets, most=None):
    return sts_records(subject_on(encoder, source, folder), sets, [2], 1e-6, most)


def test_a_set_without_gold_is_left_out_and_named(encoder, source, tmp_path):
    (tmp_path / "data" / "stsb" / "test.jsonl").unlink()
    records = measured(encoder, source, tmp_path / "rows", ["sts12", "stsb"])
    (left_out,) = [r for r in records if r["kind"] == "sts left out"]
    assert left_out["set"] == "stsb"
    assert {r["set"] for r in records if r["kind"] == "sts"} == {"sts12"}
    assert "no row with gold" in left_out["why"]


def sentences(rows):
    return {row[f"sentence{k}"] for row in rows for k in (1, 2)}


def test_scores_against_a_slow_reference(encoder, source, tmp_path):
    records = measured(encoder, source, tmp_path / "rows", ["sts12", "stsb"])
    subject = subject_on(encoder, source, tmp_path)

    def mean(sentence):
        ids = encoder.tokenizer(sentence)["input_ids"]
        return [state[0].mean(dim=0).double().numpy() for state in hidden_states(subject, [ids])]

    train, test, older = (
        lines(tmp_path / "data", name) for name in ("stsb/train", "stsb/test", "sts12/test")
    )
    scored = sentences(test) | sentences(older)
    fit = sentences(train) - scored
    rows = {sentence: mean(sentence) for sentence in scored | fit}
    for layer in range(3):
        # A norm without bias leaves one of the 16 directions empty: rounding, to be dropped.
        pca = PCA(15, whiten=True).fit([rows[s][layer] for s in sorted(fit)])
        maps = {
            "none": lambda x: x,
            "cut": lambda x: np.where(np.arange(16) == 2, 0.0, x),
            "whitened": lambda x, pca=pca: pca.transform(x[None])[0],
        }
        for treatment, treat in maps.items():
            cosines = []
            for row in test:
                u, v = (treat(rows[row[f"sentence{k}"]][layer]) for k in (1, 2))
                cosines.append(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
            expected = 100 * spearmanr(cosines, [row["score"] for row in test]).statistic
            (own,) = [
                r
                for r in records
                if (r["set"], r["treatment"], r["layer"]) == ("stsb", treatment, layer)
            ]
            assert own["spearman"] == pytest.approx(expected, abs=0.2)
            assert own["low"] < own["spearman"] < own["high"]
            assert own["n_pairs"] == 32
            assert own["n_fit"] == len(fit)


def test_most_caps_the_pairs(encoder, source, tmp_path):
    records = measured(encoder, source, tmp_path / "rows", ["stsb"], most=12)
    assert {r["n_pairs"] for r in records} == {12}
    assert {r["n_fit"] for r in records} == {24}
