"""Isotropy through training over the seeds of an arm, and the content of a study's page."""

from __future__ import annotations

import json

import pytest

from isotrain.reporting.curves import isotropy_curves
from isotrain.reporting.statistics import compare_paired, summarize
from isotrain.runs.keys import CurveKey
from isotrain.studies.results import Run

AFTER = CurveKey("isoscore", "pooled", "after")


def run(folder, seed, rows, arm="none"):
    folder = folder / f"{arm}-{seed}"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = {AFTER._replace(metric="n_rows").text: 64.0}
    return Run("wic", arm, seed, counts, {}, folder=folder)


def test_a_point_is_the_mean_over_the_seeds_at_its_step(tmp_path):
    values = {0: [0.1, 0.2], 20: [0.5, 0.3]}
    runs = [
        run(tmp_path, seed, [{"step": step, AFTER.text: own[seed]} for step, own in values.items()])
        for seed in (0, 1)
    ]
    (curve,) = isotropy_curves(runs, ["isoscore"], "none")
    assert (curve.task, curve.arm, curve.key, curve.n_rows) == ("wic", "none", AFTER, 64)
    for point, (step, own) in zip(curve.points, values.items(), strict=True):
        found = summarize(own)
        assert (point.step, point.n) == (step, 2)
        assert (point.mean, point.low, point.high) == pytest.approx(
            (found.mean, found.low, found.high)
        )


def test_what_is_no_curve_is_left_out(tmp_path):
    row = {
        AFTER.text: 0.5,
        CurveKey("lid", "pooled", "after").text: 1.0,  # another metric
        CurveKey("isoscore", "pooled", "after", "train_isotropy").text: 2.0,  # of training rows
        CurveKey("isoscore", "pooled", "before").text: None,  # not finite
        "val/loss": 1.0,
    }
    runs = [run(tmp_path, 0, [{"step": 0, **row}, {"step": 0, AFTER.text: 0.75}])]
    (curve,) = isotropy_curves(runs, ["isoscore"], "none")
    assert [tuple(point) for point in curve.points] == [(0, 0.75, None, None, 1)]


def test_seeds_that_ended_sooner_and_files_that_are_damaged(tmp_path):
    runs = [run(tmp_path, seed, [{"step": 0, AFTER.text: 0.5}]) for seed in (0, 1, 2)]
    runs.append(run(tmp_path, 3, [{"step": s, AFTER.text: 0.7} for s in (0, 9)]))
    (runs[1].folder / "metrics.jsonl").write_text("{\n")
    (runs[2].folder / "metrics.jsonl").unlink()
    (curve,) = isotropy_curves(runs, ["isoscore"], "none")
    assert [(point.step, point.n) for point in curve.points] == [(0, 2), (9, 1)]
    assert curve.end is None  # no run has it among its scores


def test_the_end_is_over_the_scores_of_the_runs(tmp_path):
    """The last row is of step 20; the scores are of the weights that were selected before."""
    rows = [{"step": step, AFTER.text: 0.1 + step} for step in (0, 20)]
    scores = [0.4, 0.7, 0.6]
    runs = []
    for seed, value in enumerate(scores):
        one = run(tmp_path, seed, rows)
        runs.append(one._replace(scores={**one.scores, AFTER.text: value}))
    runs.append(run(tmp_path, 3, rows))  # whose score is not finite
    (runs[1].folder / "metrics.jsonl").unlink()
    (curve,) = isotropy_curves(runs, ["isoscore"], "none")
    found = summarize(scores)
    assert curve.end == (3, found.mean, found.sd, found.low, found.high)
    assert [point.n for point in curve.points] == [3, 3]
    for one in runs:
        (one.folder / "metrics.jsonl").unlink(missing_ok=True)
    (alone,) = isotropy_curves(runs, ["isoscore"], "none")
    assert (alone.points, alone.end) == ((), curve.end)


def test_arms_have_their_own_curves(tmp_path):
    rows = [{"step": 0, AFTER.text: 0.5}]
    runs = [run(tmp_path, 0, rows, arm) for arm in ("zca", "none")]
    assert [curve.arm for curve in isotropy_curves(runs, ["isoscore"], "none")] == ["zca", "none"]


def test_the_interval_of_an_arm_is_that_of_its_paired_difference(tmp_path):
    """Seeds differ by tenths, the arms by hundredths: bands over seeds would hide the arm."""
    none, zca = {0: 0.1, 1: 0.4, 2: 0.7}, {0: 0.112, 1: 0.410, 2: 0.713, 3: 0.9}
    runs = []
    for arm, values in (("none", none), ("zca", zca)):
        for seed, value in values.items():
            one = run(tmp_path, seed, [{"step": 0, AFTER.text: value}], arm)
            runs.append(one._replace(scores={**one.scores, AFTER.text: value}))
    base, other = isotropy_curves(runs, ["isoscore"], "none")
    alone = summarize(list(none.values()))
    assert base.points[0][1:4] == (alone.mean, alone.low, alone.high)
    about = compare_paired([zca[k] for k in none], list(none.values())).difference
    mean = sum(zca.values()) / 4
    for found in (other.points[0][1:4], (other.end.mean, other.end.low, other.end.high)):
        assert found == pytest.approx(
            (mean, mean + about.low - about.mean, mean + about.high - about.mean)
        )
    assert about.high - about.low < 0.02 < alone.high - alone.low
    (lonely,) = isotropy_curves(runs[3:], ["isoscore"], "none")  # of an arm without its baseline
    assert lonely.points[0][2:4] == pytest.approx(summarize(list(zca.values()))[3:5])
    equal = [one._replace(scores={AFTER.text: 0.5}) for one in runs]
    assert isotropy_curves(equal, ["isoscore"], "none")[1].end[3:5] == (None, None)
