"""Rows of the result: their numbers against scipy, pairs, Holm, references, and CSV."""

import csv
import io
import json

import numpy as np
import pytest
from scipy import stats

from isotrain.results.frame import (
    ALL,
    UNTRAINED,
    frame,
    study_rows,
)
from isotrain.results.levels import CHANCE, MAJORITY
from isotrain.results.run_frames import csv_text, runs_frame
from isotrain.results.runs import Gap, Run
from isotrain.results.words import share_text
from isotrain.runs.files import read_result, write_json
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.studies.definition import Study

STUDY = Study(
    name="s",
    overrides=(),
    tasks={"rte": ("task=rte",)},
    methods={"none": ("isotropy=none",), "mean": ("isotropy=mean",), "zca": ("isotropy=zca",)},
    baseline="none",
    seeds=tuple(range(10)),
    margin=0.02,
)
NONE, MEAN, ZCA = [0.60, 0.64, 0.59, 0.62], [0.61, 0.66, 0.63, 0.62], [0.70, 0.75, 0.68, 0.73]


def methods(*args):
    """The rows of methods over all runs, without those of chance and the untrained model."""
    return [row for row in study_rows(*args) if row.baseline and row.runs == ALL]


def runs(none=NONE, mean=MEAN, zca=(), key="val/accuracy"):
    return [
        Run("rte", method, seed, {key: value}, {key: 277})
        for method, values in (("none", none), ("mean", mean), ("zca", zca))
        for seed, value in enumerate(values)
        if value is not None
    ]


def test_scores_of_other_numbers_of_examples_are_not_compared():
    found = [r._replace(shown={"val/accuracy": 64}) if r.seed else r for r in runs()[:4]]
    _, one = methods(STUDY, [*found, *runs()[4:]])
    assert (one.n, one.pairs, one.p) == (4, 1, None)
    _, none = methods(STUDY, [*found[1:], *runs()[4:]])
    assert (none.n, none.pairs, none.difference) == (4, 0, None)


def test_scores_of_splits_drawn_otherwise_are_not_compared(predicted):
    by_method = [r._replace(drawn=f"dev by split_seed={r.method}") for r in predicted]
    _, row = methods(STUDY, by_method)
    assert (row.n, row.pairs, row.difference) == (3, 0, None)
    by_seed = [r._replace(drawn=f"dev by split_seed={r.seed}") for r in predicted]
    _, row = methods(STUDY, by_seed)
    assert (row.pairs, row.both_low, row.why_no_both) == (3, None, "each seed has its own examples")


@pytest.mark.parametrize("n_undefined", [1, 4])
def test_a_collapsed_run_without_a_score_counts_as_collapsed(n_undefined):
    found = [
        run._replace(scores={}, degenerate="constant")
        if run.method == "mean" and run.seed < n_undefined
        else run
        for run in runs(zca=ZCA, key="test/spearman")
    ]
    _, mean, zca = methods(STUDY, found)
    assert mean.n == 4 - n_undefined
    assert mean.collapsed == f"{n_undefined} of 4 runs of method mean collapsed"
    assert zca.comparisons == 2
    without = [r for r in study_rows(STUDY, found) if r.runs != ALL and r.method == "mean"]
    assert [(row.n, row.collapsed) for row in without] == [(4 - n_undefined, "")]


@pytest.mark.parametrize("split", ["dev", "test"])
def test_published_scores_stand_beside_those_of_their_split(split):
    published = {"tasks": {"rte": {"none": 0.653}}, "split": split, "source": "Someone 2023"}
    study = Study(**STUDY.model_dump() | {"published": published})
    found = [
        run._replace(scores=dict.fromkeys(shown, 0.6), shown=shown)
        for run in runs()
        for shown in [{"val/accuracy": 277, "test/accuracy": 300}]
    ]
    shown = {(r.score, r.method): r.published for r in methods(study, found)}
    of = {"dev": "val/accuracy", "test": "test/accuracy"}[split]
    assert {k: v for k, v in shown.items() if v is not None} == {(of, "none"): 0.653}


def test_the_numbers_are_those_of_scipy():
    base, row = methods(STUDY, runs())
    test = stats.ttest_rel(MEAN, NONE)
    interval = test.confidence_interval(0.95)
    assert row.difference == pytest.approx(0.0175)
    assert row.p == pytest.approx(test.pvalue, rel=1e-9)
    assert row.test == "t"
    assert (row.difference_low, row.difference_high) == pytest.approx((interval.low, interval.high))
    low, high = stats.t.interval(0.95, 3, sum(MEAN) / 4, stats.sem(MEAN))
    assert (row.low, row.high) == pytest.approx((low, high))
    assert (row.examples, row.n, row.pairs) == ("277", 4, 4)
    one_sided = (
        stats.ttest_1samp(np.subtract(MEAN, NONE), bound, alternative=side).pvalue
        for bound, side in ((-0.02, "greater"), (0.02, "less"))
    )
    assert row.p_tost == pytest.approx(max(one_sided))
    assert (base.difference, base.p, base.p_tost, base.test, base.both_low) == (None,) * 3 + (
        "",
        None,
    )


def test_pairs_use_only_seeds_that_both_methods_have():
    found = runs(none=[0.60, None, 0.59, 0.62], mean=[0.61, 0.66, 0.63, None])
    _, row = methods(STUDY, found)
    assert (row.n, row.pairs) == (3, 2)
    assert row.difference == pytest.approx((0.01 + 0.04) / 2)


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
    _, row = methods(STUDY, runs([*NONE, 0.61], [*MEAN, 0.60], key=key))
    assert (row.p_tost is not None) == has_margin
    assert (row.seeds_needed is not None) == has_point


@pytest.fixture
def predicted(tmp_path):
    """Runs of two methods and three seeds that kept what they predicted for 200 rows of dev."""
    generator = np.random.default_rng(1)
    label = generator.integers(0, 2, 200).astype(float)
    found = []
    for method, right in (("none", 0.6), ("mean", 0.75)):
        for seed in range(3):
            guess = np.where(generator.random(200) < right, label, 1 - label)
            folder = tmp_path / f"{method}{seed}"
            write_predictions(folder, "dev", Predictions(np.arange(200), label, guess))
            majority = {"dev": float(max(label.mean(), 1 - label.mean()))}
            write_json(folder / "result.json", {"status": "finished", "label_majority": majority})
            score = {"val/accuracy": float((guess == label).mean())}
            found.append(Run("rte", method, seed, score, {"val/accuracy": 200}, folder=folder))
    return found


def test_rows_and_seeds_vary_in_the_interval_over_rows(predicted):
    base, row = methods(STUDY, predicted)
    assert (base.both_low, base.why_no_both, row.why_no_both) == (None, "", "")
    assert (row.both_examples, row.pairs) == (200, 3)
    assert (row.both_low + row.both_high) / 2 == pytest.approx(row.difference)
    assert row.both_high - row.both_low > row.difference_high - row.difference_low


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
    elif what == "of another score":
        return [
            run._replace(scores={"val/f1": run.seed / 10.0}, shown={"val/f1": 200}) for run in found
        ]
    return found


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("gone", "1 of 6 runs kept no predictions of dev"),
        ("other rows", "runs must have predicted the same examples"),
        ("damaged", "predictions of dev cannot be read (ValueError)"),
        ("of other weights", "predictions of dev do not belong to the scores: by them the diff"),
        ("one pair", "fewer than 3 pairs say too little about other seeds"),
        ("of another score", "it is computed for accuracy, pearson, spearman, matthews"),
    ],
)
def test_why_there_is_no_interval_over_rows(predicted, tmp_path, what, reason):
    _, row = methods(STUDY, damage(predicted, what))
    assert row.difference is not None
    assert row.both_low is None
    assert row.why_no_both.startswith(reason)
    assert str(tmp_path) not in row.why_no_both


def test_methods_that_were_left_out_after_they_were_run_still_count():
    gone = {"rte": 2, "wic": 1}
    found = {line.method: line for line in methods(STUDY, runs(zca=ZCA), (), gone)}
    p = {method: found[method].p for method in ("mean", "zca")}
    assert found["zca"].p_holm == pytest.approx(4 * p["zca"])
    assert found["mean"].p_holm == pytest.approx(min(1, max(3 * p["mean"], 4 * p["zca"])))
    assert {line.comparisons for line in found.values()} == {4}


@pytest.mark.parametrize("method", ["none", "mean"])
def test_four_pairs_and_degenerate_runs_give_no_seeds_for_a_point_and_no_equivalence(method):
    five = runs([*NONE, 0.61], [*MEAN, 0.60], zca=ZCA)
    broken = [r._replace(degenerate="one class") if r[1:3] == (method, 2) else r for r in five]
    base, mean, zca = methods(STUDY, broken)
    (before,) = (line for line in methods(STUDY, five) if line.method == "mean")
    assert (before.collapsed, before.seeds_needed is None) == ("", False)
    assert (mean.seeds_needed, mean.p_tost) == (None, None)
    assert mean.difference == before.difference
    assert mean.collapsed == f"1 of 5 runs of method {method} collapsed"
    assert bool(base.collapsed) == bool(zca.collapsed) == (method == "none")
    assert zca.seeds_needed is None  # of four pairs


def test_failed_seeds_are_counted_for_their_method_and_score():
    gaps = [
        Gap("rte", "mean", 4, "failed (NonFiniteError)", True),
        Gap("rte", "mean", 5, "failed (OSError)", True),
        Gap("rte", "mean", 6, "no finite test/accuracy", True, "test/accuracy"),
        Gap("rte", "mean", 7, "not run"),
        Gap("rte", "none", 7, "running"),
        Gap("wic", "none", 7, "failed (NonFiniteError)", True),
    ]
    assert [line.failed for line in methods(STUDY, runs(), gaps)] == [0, 2]


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
        run._replace(select=select, n_candidates=9 - 2 * (run.seed == 1)) for run in runs(key=key)
    ]
    assert {line.best_of for line in methods(STUDY, found)} == {wanted}


def log_step_0(run, **scores):
    lines = [json.dumps({"step": step, **scores}) + "\n" for step in (0, 9)]
    (run.folder / "metrics.jsonl").write_text("".join(lines))


@pytest.fixture
def begun(predicted):
    """The same, with what the runs of the baseline logged at step 0: 10 to 11 points less."""
    for run in predicted:
        if run.method == "none":
            start = run.scores["val/accuracy"] - 0.1 - 0.005 * run.seed
            log_step_0(run, **{"val/accuracy": start, "val/loss": 0.7})
    return predicted


def test_chance_and_the_untrained_model_stand_first(begun):
    share, untrained, none, mean = study_rows(STUDY, begun)
    recorded = read_result(begun[0].folder)["label_majority"]["dev"]
    assert (share.method, share.mean) == (MAJORITY, recorded)
    assert (untrained.method, untrained.n) == (UNTRAINED, 3)
    assert untrained.mean == pytest.approx(none.mean - 0.105)
    assert [none.method, mean.method] == ["none", "mean"]
    assert {row.baseline for row in (share, untrained)} == {""}
    (chance, *_) = study_rows(STUDY, runs(key="test/spearman"))
    assert (chance.method, chance.mean) == (CHANCE, 0.0)
    assert all(row.baseline for row in study_rows(STUDY, runs(key="val/f1")))


def test_a_margin_may_be_a_share_of_what_fine_tuning_gains(begun):
    share = STUDY.model_copy(update=dict(margin=None, margin_share=0.5))
    _, untrained, none, mean = study_rows(share, begun)
    assert none.gain == mean.gain == pytest.approx(0.105)
    assert none.mean - untrained.mean == pytest.approx(none.gain)
    low, high = stats.t.interval(0.95, 2, 0.105, stats.sem([0.1, 0.105, 0.11]))
    assert mean.margin == pytest.approx(0.5 * min(low, high))
    tested = [
        run._replace(
            scores={
                **run.scores,
                "test/accuracy": 0.4 + 0.1 * run.seed**2 * (run.method == "mean"),
            },
            shown={**run.shown, "test/accuracy": 9},
        )
        for run in begun
    ]
    of_test = [row for row in study_rows(share, tested) if row.score == "test/accuracy"]
    assert {row.gain for row in of_test} == {row.margin for row in of_test} == {None}  # no step 0
    unknown = methods(share, runs())  # which logged no step 0
    assert {row.margin for row in unknown} == {row.p_tost for row in unknown} == {None}


@pytest.mark.parametrize(
    ("gains", "is_known"),
    [((0.2, 0.0, 0.1), False), ((-0.1, -0.11, -0.1), False), ((0.11, 0.1, 0.1), True)],
)
def test_a_gain_that_may_be_0_is_no_scale(predicted, gains, is_known):
    for run in predicted[:3]:
        log_step_0(run, **{"val/accuracy": run.scores["val/accuracy"] - gains[run.seed]})
    _, row = methods(STUDY, predicted)
    assert (row.gain is not None) == is_known
    ends = (row.difference, row.difference_low, row.difference_high)
    shares = [f"{100 * end / row.gain:+.0f}".replace("-", "−") for end in ends if is_known]
    assert share_text(row) == (f"{shares[0]} [{shares[1]}, {shares[2]}]" if is_known else "")


@pytest.mark.parametrize(("mode", "is_known"), [("min", True), ("max", False)])
def test_a_score_of_a_task_whose_mode_is_min_gains_where_it_falls(predicted, mode, is_known):
    for run in predicted:
        log_step_0(run, **{"val/accuracy": run.scores["val/accuracy"] + 0.2 + 0.01 * run.seed})
    rows = methods(STUDY, [run._replace(mode=mode) for run in predicted])
    assert {row.gain is not None for row in rows if row.score == "val/accuracy"} == {is_known}


@pytest.mark.parametrize(("start", "is_known"), [(0.9, True), (0.6, False)])
def test_a_loss_gains_where_it_falls(predicted, start, is_known):
    """And says nothing of shares where fine-tuning raises it."""
    for run in predicted:
        run.scores["test/loss"], run.shown["test/loss"] = 0.7 + 0.001 * run.seed, 9
        run.scores["test/loss"] -= 0.04 * (run.method == "mean")
        log_step_0(run, **{"test/loss": start})
    rows = [row for row in methods(STUDY, predicted) if row.score == "test/loss"]
    assert {row.gain is not None for row in rows} == {is_known}
    assert share_text(rows[1]).startswith("+20" if is_known else "")


def test_isotropy_at_step_0_is_a_row_and_gives_no_gain(predicted):
    key = "isotropy/mean_cosine/layer_06/cls"
    found = [
        run._replace(scores={**run.scores, key: 0.5}, shown={**run.shown, key: 200})
        for run in predicted
    ]
    for run in found[:3]:
        log_step_0(run, **{key: 0.25})
    untrained, none, _ = [row for row in study_rows(STUDY, found) if row.score == key]
    assert (untrained.method, untrained.mean, untrained.n) == (UNTRAINED, 0.25, 3)
    assert none.gain is None


def test_a_method_that_differs_at_step_0_has_a_row_of_it(begun):
    """A layer that is fitted before training; an objective changes nothing there."""
    for run in begun[3:]:
        start = run.scores["val/accuracy"] - 0.2
        log_step_0(run, **{"val/accuracy": start})
    _, untrained, of_mean, *_ = study_rows(STUDY, begun)
    assert (untrained.method, of_mean.method, of_mean.n) == (UNTRAINED, "untrained, mean", 3)
    assert of_mean.baseline == ""
    for base, run in zip(begun[:3], begun[3:], strict=True):
        log_step_0(run, **{"val/accuracy": base.scores["val/accuracy"] - 0.1 - 0.005 * run.seed})
    assert not any(row.method == "untrained, mean" for row in study_rows(STUDY, begun))


def test_the_frame_has_a_column_a_field_and_csv_every_digit():
    rows = study_rows(STUDY, runs(zca=ZCA))
    table = frame(rows)
    assert list(table) == list(rows[0]._fields)
    assert (table.n.dtype, table["mean"].dtype) == ("Int64", "float64")
    lines = list(csv.DictReader(io.StringIO(csv_text(table))))
    assert float(lines[1]["difference_low"]) == pytest.approx(rows[1].difference_low, rel=1e-7)
    assert (lines[1]["margin"], lines[1]["test"], lines[1]["pairs"]) == ("0.02", "t", "4")
    assert (lines[1]["seeds_needed"], lines[1]["comparisons"]) == ("", "2")  # of four pairs
    assert (lines[0]["p"], lines[0]["published"], lines[0]["failed"]) == ("", "", "0")
    assert csv_text(frame([])).strip() == ",".join(rows[0]._fields)


def test_runs_have_a_line_each():
    found, more = runs(), [{"task.form": str(k % 2)} for k in range(8)]
    found[0] = found[0]._replace(degenerate="one class", scores={"val/loss": 0.25})
    lines = list(csv.DictReader(io.StringIO(csv_text(runs_frame(found, more)))))
    assert (len(lines), lines[0]["collapsed"], lines[5]["task.form"]) == (8, "one class", "1")
    assert (lines[0]["val/accuracy"], lines[3]["val/accuracy"]) == ("", "0.62")
    later = [run._replace(finished_at="2027") for run in found]
    assert csv_text(runs_frame(found)) == csv_text(runs_frame(later))
