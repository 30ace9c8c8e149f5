"""Tables: their numbers against scipy, pairs, gaps, and what is left empty."""

from __future__ import annotations

import csv
import io
import math

import pytest
from scipy import stats

from isotrain.results import write_json
from isotrain.study.definition import Study, StudyError, load_study
from isotrain.study.plan import plan_jobs
from isotrain.study.report import report_study
from isotrain.study.results import Run, collect
from isotrain.study.runner import run_study
from isotrain.study.table import markdown, table_csv, table_rows

STUDY = Study(
    name="s",
    overrides=(),
    tasks={"rte": ("task=rte",)},
    arms={"none": ("isotropy=none",), "mean": ("isotropy=mean",)},
    baseline="none",
    seeds=(0, 1, 2, 3),
)
NONE, MEAN = [0.60, 0.64, 0.59, 0.62], [0.61, 0.66, 0.63, 0.62]


def runs(none=NONE, mean=MEAN):
    return [
        Run("rte", arm, seed, {"val/accuracy": value}, {"val/accuracy": 277})
        for arm, values in (("none", none), ("mean", mean))
        for seed, value in enumerate(values)
        if value is not None
    ]


def parsed(found):
    return list(csv.DictReader(io.StringIO(table_csv(STUDY, table_rows(STUDY, found)))))


def test_the_numbers_are_those_of_scipy():
    base, arm = parsed(runs())
    test = stats.ttest_rel(MEAN, NONE)
    interval = test.confidence_interval(0.95)
    assert float(arm["diff_mean"]) == pytest.approx(0.0175)
    assert float(arm["p"]) == pytest.approx(test.pvalue, rel=1e-6)
    assert float(arm["diff_low"]) == pytest.approx(interval.low, rel=1e-6)
    assert float(arm["diff_high"]) == pytest.approx(interval.high, rel=1e-6)
    low, high = stats.t.interval(0.95, 3, sum(MEAN) / 4, stats.sem(MEAN))
    assert (float(arm["low"]), float(arm["high"])) == pytest.approx((low, high), rel=1e-6)
    assert (arm["N"], arm["n"], arm["diff_n"], arm["baseline"]) == ("277", "4", "4", "none")
    assert [base[key] for key in base if key.startswith("diff")] + [base["p"]] == [""] * 6


def test_pairs_use_only_seeds_that_both_arms_have():
    _base, arm = parsed(runs(none=[0.60, None, 0.59, 0.62], mean=[0.61, 0.66, 0.63, None]))
    assert (arm["n"], arm["diff_n"]) == ("3", "2")
    assert float(arm["diff_mean"]) == pytest.approx((0.01 + 0.04) / 2)


@pytest.mark.parametrize("mean", [[0.61], [None, 0.66]])
def test_one_seed_leaves_fields_empty(mean):
    _base, arm = parsed(runs(none=[0.60], mean=mean))
    assert (arm["n"], arm["sd"], arm["low"], arm["high"], arm["p"]) == ("1", "", "", "", "")
    assert arm["diff_n"] == ("1" if mean[0] else "")
    text = markdown(STUDY, table_rows(STUDY, runs(none=[0.60], mean=mean)), [], (2, 8), [])
    assert "nan" not in text.lower()
    assert "None" not in text


def test_without_the_baseline_there_are_means_and_no_differences():
    (arm,) = parsed(runs(none=[]))
    assert (arm["arm"], arm["n"], arm["diff_n"]) == ("mean", "4", "")


def test_zero_has_no_minus_sign_and_small_p_no_zero():
    text = markdown(STUDY, table_rows(STUDY, runs(mean=[v - 1e-9 for v in NONE])), [], (8, 8), [])
    assert "-0.0000" not in text
    shifted = [value + 0.1 + 1e-4 * i for i, value in enumerate(NONE)]
    assert "< 0.001" in markdown(STUDY, table_rows(STUDY, runs(mean=shifted)), [], (8, 8), [])


def test_a_report_states_what_it_is_of(fake, capsys):
    overrides = [*fake.overrides, "data.batch_size=8", "logger=[]", "checkpoint.every_steps=3"]
    assert run_study(str(fake.file), overrides, 3, fake.command) == 0
    text = (fake.folder / "table.md").read_text()
    assert "`threads=1 encoder=tiny source=demo data.batch_size=8`" in text
    assert str(fake.runs) not in text
    assert "6 of 6 runs finished" in text
    assert "seeds: 0, 1, 2" in text
    assert "the 2 tests of this study" in text  # the arms have equal isotropy: nothing to test
    lines = (fake.folder / "table.csv").read_text().splitlines()
    scores = [line.split(",")[1] for line in lines[1:]]
    assert scores[::2] == [
        "val/accuracy",
        "test/accuracy",
        "isotropy/isoscore/layer_02/tokens",
        "isotropy/isoscore/pooled/before",
        "isotropy/isoscore/pooled/after",
    ]
    per_run = list(csv.DictReader((fake.folder / "runs.csv").read_text().splitlines()))
    assert [(run["arm"], run["seed"]) for run in per_run][2:4] == [("none", "2"), ("mean", "0")]
    assert float(per_run[1]["isotropy/partition/layer_01/tokens"]) == pytest.approx(-3.3)


def test_degenerate_runs_are_listed_and_nothing_else_changes(fake):
    jobs = plan_jobs(load_study(str(fake.file)), fake.overrides)
    whole = {"status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 9, "test": 0}}
    texts = []
    for reason in (None, "", "100 % of the predictions on dev are one class"):
        for job in jobs[:4]:
            job.folder.mkdir(parents=True, exist_ok=True)
            told = {"degenerate_reason": reason} if reason is not None and job is jobs[1] else {}
            scores = {"val/accuracy": 0.5 + 0.1 * job.seed}
            write_json(job.folder / "result.json", {**whole, **told, "scores": scores})
        folder = report_study(str(fake.file), fake.overrides)
        names = ("table.md", "table.csv", "runs.csv")
        texts.append([(folder / name).read_text() for name in names])
    before, sound, collapsed = texts
    assert before == sound, "tables of runs from before, and of sound ones, are the same bytes"
    assert before[1:] == collapsed[1:]
    added = [line for line in collapsed[0].splitlines() if line not in before[0].splitlines()]
    assert added == [
        "Degenerate, and counted in the tables:",
        "- rte, none, seed 1: 100 % of the predictions on dev are one class",
    ]


def test_gaps_are_listed_with_their_reason(fake):
    jobs = plan_jobs(load_study(str(fake.file)), fake.overrides)
    results = [
        {"status": "failed", "error": "OSError: /secret/place is full"},
        {"status": "running"},
        {"scores": {"val/accuracy": math.nan}},
        {"scores": {"val/accuracy": 0.5, "test/accuracy": 0.4}},
    ]
    for job, result in zip(jobs, results, strict=False):
        job.folder.mkdir(parents=True)
        whole = {"status": "finished", "monitor": "val/accuracy"}
        whole |= {"n_rows": {"dev": 9, "test": 8}, **result}
        write_json(job.folder / "result.json", whole)
    found, missing = collect(jobs)
    assert [(run.arm, run.seed, run.shown) for run in found] == [
        ("none", 2, {"val/accuracy": 9}),
        ("mean", 0, {"val/accuracy": 9, "test/accuracy": 8}),
    ]
    assert missing == [
        "rte, none, seed 0: failed (OSError)",
        "rte, none, seed 1: running",
        "rte, none, seed 2: no finite val/accuracy",
        "rte, mean, seed 1: not run",
        "rte, mean, seed 2: not run",
    ]
    folder = report_study(str(fake.file), fake.overrides)
    assert "nan" not in (folder / "table.csv").read_text() + (folder / "runs.csv").read_text()


def test_a_report_without_runs_is_refused_and_writes_nothing(fake):
    with pytest.raises(StudyError, match="no run of study three has finished"):
        report_study(str(fake.file), fake.overrides)
    assert not fake.runs.exists()
