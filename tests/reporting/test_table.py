"""Lines of tables: their numbers against scipy, pairs, Holm, rows, and what is left empty."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from isotrain.reporting.statistics import seeds_needed
from isotrain.reporting.table import table_lines
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.studies.definition import Study
from isotrain.studies.results import Gap, Run

STUDY = Study(
    name="s",
    overrides=(),
    tasks={"rte": ("task=rte",)},
    arms={"none": ("isotropy=none",), "mean": ("isotropy=mean",), "zca": ("isotropy=zca",)},
    baseline="none",
    seeds=tuple(range(10)),
    margin=0.02,
)
NONE, MEAN, ZCA = [0.60, 0.64, 0.59, 0.62], [0.61, 0.66, 0.63, 0.62], [0.70, 0.75, 0.68, 0.73]


def runs(none=NONE, mean=MEAN, zca=(), key="val/accuracy"):
    return [
        Run("rte", arm, seed, {key: value}, {key: 277})
        for arm, values in (("none", none), ("mean", mean), ("zca", zca))
        for seed, value in enumerate(values)
        if value is not None
    ]


def test_the_numbers_are_those_of_scipy():
    base, row = table_lines(STUDY, runs())
    difference = row.comparison.difference
    test = stats.ttest_rel(MEAN, NONE)
    interval = test.confidence_interval(0.95)
    assert difference.mean == pytest.approx(0.0175)
    assert row.comparison.p == pytest.approx(test.pvalue, rel=1e-9)
    assert row.comparison.method == "t"
    assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))
    low, high = stats.t.interval(0.95, 3, sum(MEAN) / 4, stats.sem(MEAN))
    assert (row.own.low, row.own.high) == pytest.approx((low, high))
    assert (row.n_rows, row.own.n, difference.n) == ("277", 4, 4)
    one_sided = (
        stats.ttest_1samp(np.subtract(MEAN, NONE), bound, alternative=side).pvalue
        for bound, side in ((-0.02, "greater"), (0.02, "less"))
    )
    assert row.comparison.p_equivalent == pytest.approx(max(one_sided))
    assert base[5:7] == (None, None)
    assert base[8:11] == (None, None, "")


def test_holm_is_over_the_arms_of_one_score():
    rows = {row.arm: row for row in table_lines(STUDY, runs(zca=ZCA))}
    p = {"mean": stats.ttest_rel(MEAN, NONE).pvalue, "zca": stats.ttest_rel(ZCA, NONE).pvalue}
    assert p["zca"] < p["mean"]
    assert rows["zca"].p_holm == pytest.approx(2 * p["zca"])
    assert rows["mean"].p_holm == pytest.approx(max(p["mean"], 2 * p["zca"]))
    assert rows["none"].p_holm is None
    two_scores = [
        run._replace(
            scores={**run.scores, "test/accuracy": run.scores["val/accuracy"]},
            shown={**run.shown, "test/accuracy": 300},
        )
        for run in runs(zca=ZCA)
    ]
    of_dev = [row for row in table_lines(STUDY, two_scores) if row.score == "val/accuracy"]
    assert of_dev == list(rows.values())


def test_from_eight_pairs_on_signs_are_flipped():
    generator = np.random.default_rng(0)
    none, mean = generator.normal(0.6, 0.02, 8), generator.normal(0.62, 0.02, 8)
    _, row = table_lines(STUDY, runs(none.tolist(), mean.tolist()))
    exact = stats.permutation_test(
        (mean, none), lambda a, b: np.mean(a - b), permutation_type="samples", vectorized=False
    )
    assert row.comparison.method == "permutation"
    assert row.comparison.p == pytest.approx(exact.pvalue)
    assert row.comparison.p != row.comparison.difference.p
    _, seven = table_lines(STUDY, runs(none[:7].tolist(), mean[:7].tolist()))
    assert seven.comparison.method == "t"


def test_pairs_use_only_seeds_that_both_arms_have():
    found = runs(none=[0.60, None, 0.59, 0.62], mean=[0.61, 0.66, 0.63, None])
    _, row = table_lines(STUDY, found)
    assert (row.own.n, row.comparison.difference.n) == (3, 2)
    assert row.comparison.difference.mean == pytest.approx((0.01 + 0.04) / 2)


def test_the_order_in_which_runs_are_given_changes_nothing():
    assert table_lines(STUDY, runs(zca=ZCA)[::-1]) == table_lines(STUDY, runs(zca=ZCA))


@pytest.mark.parametrize("mean", [[0.61], [None, 0.66]])
def test_one_seed_leaves_fields_empty(mean):
    _, row = table_lines(STUDY, runs(none=[0.60], mean=mean))
    assert row.own[2:] == (None, None, None, None)
    assert (row.comparison is None) == (mean[0] is None)
    assert row.p_holm is None


def test_without_the_baseline_there_are_means_and_no_differences():
    (row,) = table_lines(STUDY, runs(none=[]))
    assert (row.arm, row.own.n, row.comparison) == ("mean", 4, None)


@pytest.mark.parametrize(
    ("key", "has_margin", "has_point"),
    [
        ("val/accuracy", True, True),
        ("test/spearman", True, True),
        ("val/loss", True, False),
        ("isotropy/isoscore/pooled/after", False, False),
    ],
)
def test_margin_and_point_are_of_scores_alone(key, has_margin, has_point):
    _, row = table_lines(STUDY, runs([*NONE, 0.61], [*MEAN, 0.60], key=key))
    assert (row.comparison.p_equivalent is not None) == has_margin
    assert (row.n_for_a_point is not None) == has_point


@pytest.fixture
def predicted(tmp_path):
    """Runs of two arms and three seeds that kept what they predicted for 200 rows of dev."""
    generator = np.random.default_rng(1)
    label = generator.integers(0, 2, 200).astype(float)
    found = []
    for arm, right in (("none", 0.6), ("mean", 0.75)):
        for seed in range(3):
            guess = np.where(generator.random(200) < right, label, 1 - label)
            folder = tmp_path / f"{arm}{seed}"
            write_predictions(folder, "dev", Predictions(np.arange(200), label, guess))
            score = {"val/accuracy": float((guess == label).mean())}
            found.append(Run("rte", arm, seed, score, {"val/accuracy": 200}, folder=folder))
    return found


def test_rows_and_seeds_vary_in_the_interval_over_rows(predicted):
    base, row = table_lines(STUDY, predicted)
    assert (base.rows, base.why_no_rows, row.why_no_rows) == (None, "", "")
    assert (row.rows.n_rows, row.rows.n_seeds) == (200, 3)
    assert row.rows.mean == pytest.approx(row.comparison.difference.mean)
    seeds_alone = row.comparison.difference
    assert row.rows.high - row.rows.low > seeds_alone.high - seeds_alone.low


def damage(found, what):
    """The runs, with something wrong about what they predicted."""
    file = found[4].folder / "predictions" / "dev.csv"
    if what == "gone":
        file.unlink()
    elif what == "other rows":
        one = Predictions(np.arange(1, 201), np.ones(200), np.ones(200))
        write_predictions(found[4].folder, "dev", one)
    elif what == "damaged":
        file.write_text("index,label,prediction\n0,1\n")
    elif what == "of other weights":
        label = np.arange(200) % 2
        old = Predictions(np.arange(200), label, label)
        for run in found:
            write_predictions(run.folder, "dev", old)
    elif what == "one pair":
        return [run for run in found if run.seed == 1]
    elif what == "of a loss":
        return [
            run._replace(scores={"val/loss": run.seed / 10.0}, shown={"val/loss": 200})
            for run in found
        ]
    return found


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("gone", "1 of 6 runs kept no predictions of dev"),
        ("other rows", "runs must have predicted the same rows"),
        ("damaged", "predictions of dev are damaged (ValueError)"),
        ("of other weights", "predictions of dev do not belong to the scores: by them the diff"),
        ("one pair", "one pair says nothing about other seeds"),
        ("of a loss", "it is computed for accuracy, pearson, spearman"),
    ],
)
def test_why_there_is_no_interval_over_rows(predicted, tmp_path, what, reason):
    _, row = table_lines(STUDY, damage(predicted, what))
    assert row.comparison is not None
    assert row.rows is None
    assert row.why_no_rows.startswith(reason)
    assert str(tmp_path) not in row.why_no_rows


def test_arms_that_were_left_out_after_they_were_run_still_count():
    recorded = {"rte": ["none", "mean", "zca", "old", "older"], "wic": ["another"]}
    found = {line.arm: line for line in table_lines(STUDY, runs(zca=ZCA), (), recorded)}
    p = {arm: found[arm].comparison.p for arm in ("mean", "zca")}
    assert found["zca"].p_holm == pytest.approx(4 * p["zca"])
    assert found["mean"].p_holm == pytest.approx(min(1, max(3 * p["mean"], 4 * p["zca"])))
    assert {line.n_comparisons for line in found.values()} == {4}


def test_seeds_for_a_point_are_those_of_the_rule_of_the_table():
    five = [*NONE, 0.61], [*MEAN, 0.60]
    (_, one), (_, among, _) = (table_lines(STUDY, runs(*five, zca=zca)) for zca in ((), ZCA))
    sd = one.comparison.difference.sd
    assert one.n_for_a_point == seeds_needed(sd)
    assert among.n_for_a_point == seeds_needed(sd, n_comparisons=2) > one.n_for_a_point


@pytest.mark.parametrize("arm", ["none", "mean"])
def test_four_pairs_and_degenerate_runs_give_no_seeds_for_a_point_and_no_equivalence(arm):
    five = runs([*NONE, 0.61], [*MEAN, 0.60], zca=ZCA)
    broken = [r._replace(degenerate="one class") if r[1:3] == (arm, 2) else r for r in five]
    base, mean, zca = table_lines(STUDY, broken)
    (before,) = (line for line in table_lines(STUDY, five) if line.arm == "mean")
    assert (before.degenerate, before.n_for_a_point is None) == ("", False)
    assert (mean.n_for_a_point, mean.comparison.p_equivalent) == (None, None)
    assert mean.comparison.difference == before.comparison.difference
    assert mean.degenerate == f"1 of 5 runs of {arm} are degenerate"
    assert bool(base.degenerate) == bool(zca.degenerate) == (arm == "none")
    assert zca.n_for_a_point is None  # of four pairs


def test_an_arm_whose_runs_are_all_left_out_has_a_line_without_seeds():
    found = runs(zca=ZCA, key="test/accuracy")
    sound = [run for run in found if run.arm != "zca"]
    aside = [run for run in found if run.arm == "zca"]
    lines = table_lines(STUDY, sound, left_out=aside)
    assert [(line.arm, line.own.n, line.n_rows) for line in lines] == [
        ("none", 4, "277"),
        ("mean", 4, "277"),
        ("zca", 0, "277"),
    ]
    (_, alone), mean = table_lines(STUDY, sound), lines[1]
    assert mean.comparison == alone.comparison
    assert (mean.n_comparisons, mean.p_holm) == (2, pytest.approx(2 * alone.p_holm))  # it was run
    assert lines[2].comparison is None
    nothing = table_lines(STUDY, [], left_out=found)
    assert [line.own.n for line in nothing] == [0, 0, 0]


def test_test_stands_first_and_isotropy_last():
    keys = {"val/accuracy": 277, "test/accuracy": 300, "isotropy/isoscore/pooled/after": 9}
    found = [Run("rte", "none", 0, dict.fromkeys(keys, 0.5), keys)]
    assert [line.score.partition("/")[0] for line in table_lines(STUDY, found)] == [
        *("test", "val", "isotropy"),
    ]


def test_predictions_whose_storage_fails_are_not_called_damaged(predicted, monkeypatch):
    def fail(folder, split):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("isotrain.reporting.table.read_predictions", fail)
    _, row = table_lines(STUDY, predicted)
    assert row.why_no_rows == "predictions of dev cannot be read now (Input/output error)"


def test_failed_seeds_are_counted_for_their_arm_and_score():
    gaps = [
        Gap("rte", "mean", 4, "failed (NonFiniteError)", True),
        Gap("rte", "mean", 5, "failed (OSError)", True),
        Gap("rte", "mean", 6, "no finite test/accuracy", True, "test/accuracy"),
        Gap("rte", "mean", 7, "not run"),
        Gap("rte", "none", 7, "running"),
        Gap("wic", "none", 7, "failed (NonFiniteError)", True),
    ]
    assert [line.n_failed for line in table_lines(STUDY, runs(), gaps)] == [0, 2]


@pytest.mark.parametrize(
    ("key", "select", "wanted"),
    [
        ("val/accuracy", "best", "7 or 9"),
        ("test/accuracy", "best", ""),
        ("val/accuracy", "holdout", ""),
        ("val/accuracy", "last", ""),
        ("isotropy/isoscore/pooled/after", "best", ""),
    ],
)
def test_a_score_that_selected_its_weights_is_the_best_of_several(key, select, wanted):
    found = [
        run._replace(select=select, n_evaluations=9 - 2 * (run.seed == 1)) for run in runs(key=key)
    ]
    assert {line.best_of for line in table_lines(STUDY, found)} == {wanted}
