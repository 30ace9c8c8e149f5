"""What finished runs left, and what is reported of runs that are not there or damaged."""

import json
import math

import pytest

from isotrain.commands.report import write_report
from isotrain.results.findings import titled
from isotrain.results.result import mixtures
from isotrain.results.runs import Run, collect
from isotrain.runs.stored import PlanError
from isotrain.studies.call import Job
from tests.studies import played

WHOLE = {"status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 9, "test": 8}}


def leave(job, **more):
    played.leave(job.folder, **{**WHOLE, "scores": {"val/accuracy": 0.5}, **more})


@pytest.fixture
def jobs(tmp_path):
    """Two methods of three seeds."""
    return [
        Job("rte", method, seed, tmp_path / "rte" / f"{method}-{seed}")
        for method in ("none", "mean")
        for seed in range(3)
    ]


def test_gaps_are_listed_with_their_reason(jobs):
    results = [
        {"status": "failed", "error": "OSError: /secret/place is full"},
        {"status": "running"},
        {"scores": {"val/accuracy": math.nan}},
        {"scores": {"val/accuracy": 0.5, "test/accuracy": 0.4}},
    ]
    for job, result in zip(jobs, results, strict=False):
        leave(job, **result)
    found, missing = collect(jobs)
    assert [(run.method, run.seed, run.shown) for run in found] == [
        ("none", 2, {"val/accuracy": 9}),
        ("mean", 0, {"val/accuracy": 9, "test/accuracy": 8}),
    ]
    assert [str(gap) for gap in missing] == [
        "rte, none, seed 0: failed (OSError)",
        "rte, none, seed 1: interrupted",
        "rte, none, seed 2: no finite val/accuracy",
        "rte, mean, seed 1: not run",
        "rte, mean, seed 2: not run",
    ]
    assert [gap.has_failed for gap in missing] == [True, False, True, False, False]


def test_a_score_that_is_not_finite_is_missing_in_every_table(fake):
    fake.changed["mean", 1] = {"scores": {"val/accuracy": math.nan, "test/accuracy": 0.5}}
    assert fake.run() == 0
    texts = [(fake.folder / name).read_text() for name in ("table.csv", "runs.csv")]
    assert "nan" not in "".join(texts)
    text = " ".join((fake.folder / "table.md").read_text().split())
    assert "the other seeds: - rte, mean, seed 1: no finite val/accuracy ##" in text


@pytest.mark.parametrize(
    "text",
    [
        *("", '{"status": "finished"}', "\xff"),
        json.dumps({**WHOLE, "scores": {"val/accuracy": "high"}}),
    ],
)
def test_a_damaged_result_is_missing_and_left_alone(jobs, text):
    leave(jobs[1])
    jobs[0].folder.mkdir(parents=True)
    file = jobs[0].folder / "result.json"
    file.write_bytes(text.encode("latin1"))
    found, missing = collect(jobs)
    assert [run.seed for run in found] == [1]
    assert str(missing[0]).startswith("rte, none, seed 0: damaged: result.json (")
    assert str(file.parent) not in str(missing[0])
    assert file.read_bytes() == text.encode("latin1")


def test_nothing_finished_is_reported_with_what_is_damaged(fake):
    fake.failing = {(m, s): ValueError("x") for m in ("none", "mean") for s in (0, 1)}
    assert fake.run() == 1
    plan = fake.plan
    plan.jobs[0].folder.mkdir(parents=True)
    (plan.jobs[0].folder / "result.json").write_text("{")
    with pytest.raises(PlanError, match=r"no run of study few has finished(.|\n)*damaged"):
        write_report(plan)
    assert {path.name for path in fake.folder.iterdir()} == {"study.json", "logs", "lock"}


def test_mixed_code_and_data_are_reported_with_their_runs():
    runs = [Run("rte", "none", seed, {}, {}, code="a", data="x") for seed in range(5)]
    assert mixtures(runs) == mixtures([]) == []
    runs += [runs[0]._replace(task="wic", data="y")]  # another task has other data
    assert mixtures(runs) == []
    runs += [runs[0]._replace(method="mean", seed=seed, code="b+", data="z") for seed in (0, 1, 3)]
    assert titled(mixtures(runs)) == {
        "Mixed code (+ = with changes not committed)": [
            *("a: rte none 0–4; wic none 0", "b+: rte mean 0, 1, 3"),
        ],
        "Mixed revisions of the data of rte": ["x: rte none 0–4", "z: rte mean 0, 1, 3"],
    }


@pytest.mark.parametrize(
    ("code", "titles"),
    [
        ("0a1b", []),
        ("0a1b+77aa", ["Code with changes not committed (+)"]),
        ("0a1b > 2c3d", ["Mixed code (+ = with changes not committed)"]),
    ],
)
def test_one_version_is_reported_where_nobody_can_get_it_back(code, titles):
    runs = [Run("rte", "none", seed, {}, {}, code=code) for seed in range(3)]
    assert list(titled(mixtures(runs))) == titles
    assert [line for own in titled(mixtures(runs)).values() for line in own] == [
        f"{code}: rte none 0–2" for _ in titles
    ]
