"""Scores of resampled rows against scipy on the rows written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isotrain.reporting.row_bootstrap import SCORES

FEW = settings(max_examples=25)


@FEW
@given(st.integers(0, 10**6), st.integers(3, 30), st.integers(2, 12))
def test_scores_of_a_resample_are_those_of_its_rows_written_out(seed, n_rows, n_values):
    """Few values, so that there are ties; counts of 0 and of several."""
    rng = np.random.default_rng(seed)
    label_N = rng.integers(0, n_values, n_rows).astype(float)
    prediction_PN = rng.integers(0, n_values, (2, n_rows)).astype(float)
    count_RN = rng.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=4).astype(float)
    found = {name: score(label_N, prediction_PN, count_RN) for name, score in SCORES.items()}
    for r, count_N in enumerate(count_RN.astype(int)):
        label = np.repeat(label_N, count_N)
        for p in range(2):
            prediction = np.repeat(prediction_PN[p], count_N)
            assert found["accuracy"][r, p] == pytest.approx(np.mean(label == prediction))
            if len(set(label)) == 1 or len(set(prediction)) == 1:
                assert np.isnan([found["pearson"][r, p], found["spearman"][r, p]]).all()
                continue
            pearson = stats.pearsonr(label, prediction).statistic
            assert found["pearson"][r, p] == pytest.approx(pearson, abs=1e-9)
            spearman = stats.spearmanr(label, prediction).statistic
            assert found["spearman"][r, p] == pytest.approx(spearman, abs=1e-9)


def test_pearson_of_cosines_that_lie_close_together():
    """All about 0.98 with a spread of 1e-4, as an anisotropic encoder gives them."""
    rng = np.random.default_rng(0)
    label_N = rng.uniform(0, 5, 500)
    prediction_N = 0.98 + 1e-4 * rng.normal(label_N / 5, 0.3)
    count_N = np.bincount(rng.integers(0, 500, 500), minlength=500)
    found = SCORES["pearson"](label_N, prediction_N[None], count_N[None].astype(float))
    rows = [np.repeat(values, count_N) for values in (label_N, prediction_N)]
    assert found[0, 0] == pytest.approx(stats.pearsonr(*rows).statistic, abs=1e-9)
