"""What a study shows: a verdict for each method, its numbers in order, faults of the whole."""

import pytest

from isotrain.pages.study_page import write_study_page
from isotrain.results.findings import finding
from isotrain.results.frame import WITHOUT, Row
from isotrain.results.result import Result
from isotrain.results.runs import Gap, Run
from isotrain.results.verdicts import faults, is_equivalent, task_answers, verdict
from isotrain.runs.keys import CurveKey
from isotrain.studies.definition import Study
from tests.pages.small_study import METRICS, PLACES, TASKS, result, runs_of, study_of
from tests.stored_texts import same_text, text_of

KEY = "test/accuracy"


def row(method, mean=0.0, p_holm=0.5, n=8, key=KEY, task="wic", half=0.01, **more):
    return Row(
        *("all", task, key, method, "1400", n, 0.6 + mean, 0.02),
        baseline="none",
        difference=mean,
        difference_low=mean - half,
        difference_high=mean + half,
        pairs=n,
        p_holm=p_holm,
        test="permutation",
        margin=0.01 if "p_tost" in more else None,
    )._replace(**more)


def base(method="none", **more):
    return Row("all", "wic", KEY, method, "1400", 8, 0.6, 0.02, baseline="none")._replace(**more)


def content(*rows, methods=("a", "b", "c"), runs=(), n_planned=0, **more):
    study = Study(
        name="s",
        tasks={"wic": ()},
        methods=dict.fromkeys(("none", *methods), ()),
        baseline="none",
        seeds=more.pop("seeds", tuple(range(8))),
    )
    return Result(study, runs, more.pop("gaps", ()), rows, n_planned, **more)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (row("a", 0.03, 0.049), "higher"),
        (row("a", -0.03, 0.049), "lower"),
        (row("a", -0.03, 0.05), "undecided"),
        (row("a", 0.001, 0.9, p_tost=0.049), "equivalent"),
        (row("a", 0.001, 0.9, p_tost=0.05), "undecided"),
        (row("a", 0.004, 0.01, p_tost=0.001), "higher"),
        (row("a", 0.03, None), "untested"),
        (row("a", float("nan"), 0.01), "untested"),
        (base(), "untested"),
        (row("a", 0.03, 0.001, p_tost=0.001, collapsed="8 of 8 runs"), "no claim"),
        (row("a", 0.03, None, collapsed="8 of 8 runs"), "no claim"),
    ],
)
def test_verdicts(given, wanted):
    assert verdict(given) == wanted


LINES = (
    base(),
    row("a", -0.01, 0.02),
    row("b", -0.03, 0.0004, both_low=-0.05, both_high=0.01),
    row("c", 0.002, 0.9, p_tost=0.013),
    row("d", 0.004, 0.6, seeds_needed=37),
    row("e", 0.005, 0.01, p_tost=0.001, both_low=0.001, both_high=0.007),
    row("f", 0.03, 0.01, collapsed="8 of 8 runs of none collapsed"),
    row("g", 0.02, None, n=1, failed=7),
    base("h"),
    base("i", difference=0.0, pairs=8),
    base("chance", baseline="", mean=0.5),
)


def test_each_method_has_its_verdict_the_baseline_first_then_by_difference():
    (answer,) = task_answers(content(*LINES, methods="abcdefghi"))
    found = [(line.row.method, line.verdict) for line in answer.lines]
    assert found == [
        ("none", ""),
        ("f", "no claim"),
        ("g", "untested"),
        ("e", "higher"),
        ("d", "undecided"),
        ("c", "equivalent"),
        ("i", "untested"),
        *(("a", "lower"), ("b", "lower"), ("h", "untested")),
        ("chance", ""),
    ]
    lines = {line.row.method: line for line in answer.lines}
    assert [name for name in lines if is_equivalent(lines[name].row)] == ["e", "c"]
    assert [name for name in lines if lines[name].both_ci_contains_zero] == ["b"]
    assert [name for name in lines if lines[name].is_baseline] == ["none"]
    assert answer.of("lower") == ["a", "b"]
    assert (answer.task, answer.score, answer.isotropy_keys) == ("wic", KEY, [])


def test_what_a_page_says_of_every_verdict(tmp_path):
    found = content(*LINES, methods="abcdefghi", kind="study")
    page = write_study_page(tmp_path, found).read_text(encoding="utf-8")
    same_text("verdicts.txt", text_of(page).partition("± and")[0])


@pytest.mark.parametrize(("n_seeds", "n_singles"), [(8, 0), (4, 0), (3, 3), (1, 1)])
def test_isotropy_and_the_scores_of_few_seeds_stand_beside_the_difference(n_seeds, n_singles):
    runs = runs_of(seeds=range(n_seeds))
    answers = task_answers(result(runs, study_of(seeds=range(n_seeds))))
    assert [answer.task for answer in answers] == [*TASKS]
    for answer in answers:
        clouds = ("layer_01", "tokens"), ("pooled", "after")
        assert answer.isotropy_keys == [CurveKey(m, *cloud) for cloud in clouds for m in METRICS]
        compared = [line for line in answer.lines if line.row.baseline]
        assert compared[0].is_baseline
        for line in compared:
            own = [r.scores for r in runs if (r.task, r.method) == (answer.task, line.row.method)]
            assert line.singles == [scores[answer.score] for scores in own][: n_singles or 0]
            means = [sum(scores[p.text] for scores in own) / len(own) for p in answer.isotropy_keys]
            assert line.isotropy == pytest.approx(means, rel=1e-12)
    bare = [run._replace(scores={KEY: 0.5}) for run in runs if run.task == "wic"]
    (of_bare, _) = task_answers(result(bare, study_of(seeds=range(n_seeds))))
    assert of_bare.isotropy_keys == []
    assert len(PLACES) > 4, "some places are not in the answer"


def test_the_best_is_first_where_lower_is_better():
    rows = (base(), row("a", 0.03, 0.01), row("b", -0.03, 0.01))
    runs = [Run("wic", "none", 0, {KEY: 0.7}, {KEY: 1400})]
    for mode, order in (("max", "ab"), ("min", "ba")):
        (answer,) = task_answers(content(*rows, runs=[runs[0]._replace(mode=mode)]))
        assert [line.row.method for line in answer.lines] == ["none", *order]
        assert answer.is_lower_better == (mode == "min")


def test_a_reference_has_no_scores_of_a_method_of_its_name():
    runs = [Run("wic", "a", seed, {KEY: 0.7}, {KEY: 1400}) for seed in range(2)]
    (answer,) = task_answers(content(base(), base("a"), base("a", baseline="", n=0), runs=runs))
    lines = [line for line in answer.lines if line.row.method == "a"]
    assert [(line.row.baseline, line.singles) for line in lines] == [("none", [0.7, 0.7]), ("", [])]


def test_faults_of_a_study():
    whole = content(base(), row("a", -0.03, 0.01), runs=RUNS, n_planned=2)
    assert faults(whole) == []
    assert faults(whole._replace(n_planned=5)) == [finding("runs_missing", n=3, planned=5)]
    gap = whole._replace(gaps=[Gap("wic", "a", 0, "not run")])
    counts = [(("wic", "a", "not run"), 1)]
    assert faults(gap) == [finding("seeds_missing", counts=counts, n_seeds=8)]
    assert faults(content(base(), seeds=(3,))) == [finding("one_seed")]


RUNS = tuple(Run("wic", method, 0, {KEY: 0.6}, {}) for method in ("none", "a"))


@pytest.mark.parametrize(
    ("rows", "changed"),
    [
        ((row("a", -0.03, 0.01),), []),
        ((row("a", -0.01, 0.2),), [("a", "wic", "lower", "undecided")]),
        ((base(),), [("a", "wic", "lower", "untested")]),
        ((), None),
    ],
)
def test_collapsed_predictions_are_reported_with_what_they_change(rows, changed):
    broken = (RUNS[0], RUNS[1]._replace(degenerate="one class"))
    without = [one._replace(runs=WITHOUT) for one in rows]
    found = content(base(), row("a", -0.03, 0.01), *without, runs=broken)
    assert faults(found) == [finding("collapsed", n=1, of=2, methods=["a"], changed=changed)]
