"""Isotropy through training over the seeds of a method, and the content of a study's page."""

import json

from isotrain.results.curves import isotropy_curves
from isotrain.results.runs import Run
from isotrain.results.statistics import summarize
from isotrain.runs.keys import CurveKey

AFTER = CurveKey("isoscore", "pooled", "after")


def run(folder, seed, rows, method="none"):
    folder = folder / f"{method}-{seed}"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = {AFTER._replace(metric="n_rows").text: 64.0}
    return Run("wic", method, seed, counts, {}, folder=folder)


def test_a_point_is_the_mean_over_the_seeds_at_its_step(tmp_path):
    values = {0: [0.1, 0.2], 20: [0.5, 0.3]}
    runs = [
        run(tmp_path, seed, [{"step": step, AFTER.text: own[seed]} for step, own in values.items()])
        for seed in (0, 1)
    ]
    (curve,) = isotropy_curves(runs, ["isoscore"])
    assert (curve.task, curve.method, curve.key) == ("wic", "none", AFTER)
    assert curve.points == {step: summarize(own) for step, own in values.items()}


def test_what_is_no_curve_is_left_out(tmp_path):
    row = {
        AFTER.text: 0.5,
        CurveKey("lid", "pooled", "after").text: 1.0,  # another metric
        CurveKey("isoscore", "pooled", "after", "train_isotropy").text: 2.0,  # of training rows
        CurveKey("isoscore", "pooled", "before").text: None,  # not finite
        "val/loss": 1.0,
    }
    runs = [run(tmp_path, 0, [{"step": 0, **row}, {"step": 0, AFTER.text: 0.75}])]
    (curve,) = isotropy_curves(runs, ["isoscore"])
    assert curve.points == {0: summarize([0.75])}


def test_seeds_that_ended_sooner_and_files_that_are_damaged(tmp_path):
    runs = [run(tmp_path, seed, [{"step": 0, AFTER.text: 0.5}]) for seed in (0, 1, 2)]
    runs.append(run(tmp_path, 3, [{"step": s, AFTER.text: 0.7} for s in (0, 9)]))
    (runs[1].folder / "metrics.jsonl").write_text("{\n")
    (runs[2].folder / "metrics.jsonl").unlink()
    (curve,) = isotropy_curves(runs, ["isoscore"])
    assert [(step, point.n) for step, point in curve.points.items()] == [(0, 2), (9, 1)]
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
    (curve,) = isotropy_curves(runs, ["isoscore"])
    assert curve.end == summarize(scores)
    assert [point.n for point in curve.points.values()] == [3, 3]
    for one in runs:
        (one.folder / "metrics.jsonl").unlink(missing_ok=True)
    (alone,) = isotropy_curves(runs, ["isoscore"])
    assert (alone.points, alone.end) == ({}, curve.end)
