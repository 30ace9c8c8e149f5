"""What transforms are fitted on: never on train and test together."""

import numpy as np
import pytest

from isotrain.analysis.offline_isotropy import analysis as offline_pairs
from isotrain.analysis.offline_isotropy.analysis import OfflineIsotropy
from tests.analysis.offline_isotropy.offline_rows import (
    SMALL,
    labelled_rows,
    pair_rows,
    subject_on,
    write,
    write_sets,
)
from tests.analysis.runs import of, outcome_of


@pytest.fixture
def subject(encoder, tmp_path):
    return lambda sets, folder="rows": subject_on(encoder, sets, tmp_path / folder)


@pytest.fixture(scope="module")
def n_tokens(encoder):
    def count(texts):
        ids = encoder.tokenizer(sorted(texts), add_special_tokens=False)["input_ids"]
        return sum(map(len, ids))

    return count


def cosines_of(analysis, subject, monkeypatch):
    """Cosines `[L, S, P]` of STS12, by catching what is scored."""
    caught = []

    def catch(pairs, cosine_SP, *rest):
        caught.append(cosine_SP)
        return iter(())

    with monkeypatch.context() as patched:
        patched.setattr(offline_pairs, "scores", catch)
        for part in analysis.parts(subject):
            part.measure()
    return np.stack(caught)


@pytest.mark.parametrize("fit_on", ["train", "test"])
def test_with_train_statistics_no_pair_depends_on_the_others(
    sets, subject, tmp_path, monkeypatch, fit_on
):
    """More scored pairs change nothing: a fit on train and test together would move them."""
    larger = write_sets(tmp_path / "larger")
    more = [
        {"sentence1": f"red {'bird ' * n}", "sentence2": f"horse {'cat ' * n}", "score": 1.0}
        for n in range(1, 21)
    ]
    write(larger, "sts12", "test", pair_rows(5, 30) + more)
    analysis = OfflineIsotropy(
        **{**SMALL, "max_rows": 2000}, sets=["sts12"], fit_on=fit_on, layers="all"
    )
    few_LSP = cosines_of(analysis, subject(sets, "few"), monkeypatch)
    many_LSP = cosines_of(analysis, subject(larger, "many"), monkeypatch)[:, :, :30]
    moved_LS = np.abs(few_LSP - many_LSP).max(axis=2)
    assert len(moved_LS) == 3
    assert (moved_LS[:, :2] < 1e-5).all()  # own_pooling and none
    if fit_on == "train":
        assert (moved_LS < 1e-4).all()
    else:  # transductive, as published
        assert (moved_LS[:, 2:] > 1e-3).all()


def test_sentences_that_are_scored_are_not_fitted_on(sets, subject, tmp_path, n_tokens):
    overlapping = write_sets(tmp_path / "overlapping")
    both = pair_rows(1, 30) + pair_rows(2, 30)[:10]  # of dev and of test, beside its own
    write(overlapping, "stsb", "train", pair_rows(0, 30) + both)
    choices = {"sets": ["stsb"], "layers": [2], "transforms": ["none", "mean"]}
    analysis = OfflineIsotropy(**{**SMALL, "max_rows": 5000}, **choices)
    n_fitted = [
        of(outcome_of(analysis, subject(own, name)), kind="cloud", setting="mean")[0]["n_fitted"]
        for own, name in ((sets, "plain"), (overlapping, "with_test"))
    ]
    texts = [row[side] for row in pair_rows(0, 30) + both for side in ("sentence1", "sentence2")]
    scored = {row[side] for row in pair_rows(2, 30) for side in ("sentence1", "sentence2")}
    assert n_fitted[1] == n_tokens(set(texts) - scored)
    assert n_fitted[0] < n_fitted[1]


def test_sst2_is_fitted_on_train_alone(sets, subject, tmp_path, n_tokens):
    other = write_sets(tmp_path / "other")
    write(other, "sst2", "test", labelled_rows(8, 90))
    few = {"transforms": ["none", "mean", "mean_pca", "kmeans_mean_pca"], "layers": [2]}
    analysis = OfflineIsotropy(**{**SMALL, "max_rows": 2000}, sets=["sst2"], **few)
    found = [outcome_of(analysis, subject(own, own.name)) for own in (sets, other)]
    n_train = n_tokens({row["sentence"] for row in labelled_rows(0, 30)})
    for one in found:
        assert {r["n_fitted"] for r in of(one, kind="cloud", fitted_on="sst2 train")} == {n_train}
    for kind, split in (("cloud", "train"), ("head", "dev")):
        before, after = (of(one, kind=kind, split=split) for one in found)
        assert len(before) == 4
        assert [r["setting"] for r in before] == [r["setting"] for r in after]
        for key in {"cloud": ("isoscore", "ln_partition"), "head": ("accuracy",)}[kind]:
            values = ([r[key] for r in own] for own in (before, after))
            np.testing.assert_allclose(*values, rtol=1e-3, atol=1e-4)


def test_a_split_without_gold_is_not_scored(sets, subject, tmp_path):
    hidden = write_sets(tmp_path / "hidden")
    write(hidden, "sst2", "test", [row | {"label": -1} for row in labelled_rows(2, 30)])
    found = outcome_of(
        OfflineIsotropy(**SMALL, sets=["sst2"], transforms=["none"]), subject(hidden)
    )
    assert {r["split"] for r in of(found, kind="head")} == {"dev"}
