"""The answer of a study in words says what its numbers support, and no more."""

from __future__ import annotations

import math

import pytest

from isotrain.pages.study_answer import faults, summary, task_answers, task_score, verdict
from isotrain.pages.study_content import (
    Difference,
    Estimate,
    Named,
    OverRows,
    ScoreRow,
    StudyContent,
    StudyRun,
)

KEY, PLACE = "test/accuracy", "isotropy/isoscore_corrected/layer_06/tokens"


def row(arm, mean=0.0, p_holm=0.5, n=8, key=KEY, task="wic", half=0.01, **more):
    about = Estimate(n, mean, 0.02, mean - half, mean + half)
    found = Difference(about, p_holm and p_holm / 2, p_holm, "permutation", **more)
    return ScoreRow(task, key, arm, "1400", Estimate(n, 0.6 + mean, 0.02), found)


def base(key=KEY, task="wic", n=8):
    return ScoreRow(task, key, "none", "1400", Estimate(n, 0.6, 0.02))


def content(*rows, arms=("a", "b", "c"), tasks=("wic",), **more):
    found = StudyContent(
        name="s",
        baseline="none",
        tasks=tuple(map(Named, tasks)),
        arms=tuple(map(Named, ("none", *arms))),
        seeds=tuple(range(8)),
        rows=rows,
        runs=(),
    )
    return found._replace(**more)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (row("a", 0.03, 0.049), "higher"),
        (row("a", -0.03, 0.049), "lower"),
        (row("a", -0.03, 0.05), "undecided"),
        (row("a", 0.001, 0.9, p_equivalent=0.049), "equivalent"),
        (row("a", 0.001, 0.9, p_equivalent=0.05), "undecided"),
        (row("a", 0.004, 0.01, p_equivalent=0.001), "higher"),
        (row("a", 0.001, 0.9, p_equivalent=0.001, key=PLACE), "undecided"),
        (row("a", 0.03, None), "untested"),
        (row("a", math.nan, 0.01), "untested"),
        (base(), "untested"),
    ],
)
def test_verdicts(given, wanted):
    assert verdict(given) == wanted


def test_an_interval_without_0_is_undecided_where_holm_says_so():
    found = row("a", 0.02, 0.06, half=0.01)
    assert found.difference.estimate.low > 0
    (answer,) = task_answers(content(base(), found))
    assert answer.items == ["Undecided: a +0.020 [+0.010, +0.030], p = 0.060."]


def test_the_summary_names_every_arm_with_its_tasks():
    rows = []
    for task, effect in (("wic", 0.03), ("stsb", -0.03)):
        rows += [base(task=task), row("a", effect, 0.01, task=task), row("b", task=task)]
        rows += [row("c", 0.0, 0.9, task=task, p_equivalent=0.01), row("d", 0.0, None, task=task)]
    found = content(*rows, arms=("a", "b", "c", "d"), tasks=("wic", "stsb"), margin=0.01)
    assert summary(found) == (
        "Higher score than the baseline none: a (wic). Lower: a (stsb). The same within ±0.01: c "
        "(wic, stsb). Undecided: b (wic, stsb). Not tested: d (wic, stsb)."
    )
    one = content(base(), row("b"), arms=("b",))
    assert summary(one) == (
        "Higher score than the baseline none: no arm. Lower: no arm. Undecided: b."
    )


def test_without_a_test_nothing_is_said_of_any_arm():
    for rows in ((), (base(), row("a", 0.1, None, n=1)), (base(),)):
        assert summary(content(*rows)).startswith("Nothing can be said of any arm against the")


def test_each_arm_comes_with_its_numbers_the_largest_difference_first():
    rows = [
        base(),
        row("a", -0.01, 0.02),
        row("b", -0.03, 0.0004),
        row("c", 0.002, 0.9, p_equivalent=0.013),
        row("d", 0.004, 0.6, n_for_a_point=37),
        row("e", 0.003, 0.6, n_for_a_point=7),
    ]
    (answer,) = task_answers(content(*rows, arms="abcde", margin=0.01))
    assert answer.title == "wic: accuracy on test (N = 1,400, n = 8 seeds, baseline none 0.600)"
    assert answer.items == [
        "Lower: b −0.030 [−0.040, −0.020], p < 0.001; a −0.010 [−0.020, 0.000], p = 0.020.",
        "The same within ±0.01: c +0.002 [−0.008, +0.012], equivalence p = 0.013.",
        "Undecided: d +0.004 [−0.006, +0.014], p = 0.600, about 37 seeds would show 0.01; "
        "e +0.003 [−0.007, +0.013], p = 0.600, about 7 seeds would show 0.01, and 8 were run.",
    ]


def test_what_takes_something_back_from_a_difference():
    found = row("a", 0.004, 0.01, p_equivalent=0.001)._replace(
        over_rows=OverRows(0.004, -0.01, 0.018, 1400, 8)
    )
    (answer,) = task_answers(content(base(), found, margin=0.01))
    (text,) = answer.items
    assert text.endswith("p = 0.010, yet within ±0.01, but [−0.010, +0.018] over rows and seeds.")
    apart = found._replace(over_rows=OverRows(0.004, 0.001, 0.007, 1400, 8))
    (answer,) = task_answers(content(base(), apart, margin=0.01))
    assert "rows and seeds" not in answer.items[0]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (row("a", 0.02, None, n=1), "+0.020 on one seed"),
        (row("a", math.nan, None), "no finite difference"),
        (base()._replace(arm="a"), "no seed in common with the baseline"),
        (
            base()._replace(arm="a", difference=Difference(Estimate(8, 0.0, 0.0))),
            "0.000 on every seed",
        ),
    ],
)
def test_why_an_arm_is_not_tested(found, reason):
    (answer,) = task_answers(content(base(), found, row("b")))
    assert answer.items[-1] == f"Not tested: a ({reason})."


def test_the_answer_is_of_test_where_there_is_one():
    rows = [base("val/accuracy"), row("a", 0.05, 0.001, key="val/accuracy"), base(), row("a")]
    assert task_score(content(*rows), "wic") == KEY
    assert summary(content(*rows)).endswith("Undecided: a.")
    assert task_score(content(*rows[:2]), "wic") == "val/accuracy"
    assert task_score(content(base(PLACE)), "wic") == ""
    assert task_answers(content(base(PLACE)))[0].items == ["No score of a finished run."]


def test_isotropy_stands_beside_the_verdict_on_the_score():
    rows = [base(), row("a", -0.03, 0.01), row("b"), row("c", 0.0, 0.9, p_equivalent=0.01)]
    of_place = [base(PLACE), row("a", 0.2, 0.001, key=PLACE), row("b", -0.1, 0.001, key=PLACE)]
    found = content(*rows, *of_place, row("c", 0.001, 0.9, key=PLACE), margin=0.01)
    assert task_answers(found)[0].items[-1] == (
        "IsoScore, bias-corrected (1 = isotropic), layer 6, tokens: baseline 0.600. Higher with a "
        "+0.200 [+0.190, +0.210], which scores lower. Lower with b −0.100 [−0.110, −0.090], which "
        "has an undecided score."
    )
    same = content(*rows, base(PLACE), row("a", 0.001, 0.9, key=PLACE))
    assert task_answers(same)[0].items[-1].endswith("No arm is shown to change it.")
    assert task_answers(content(base(), base(PLACE)))[0].items == []  # nothing to compare with
    alone = content(*rows, base(PLACE), row("a", 0.1, None, key=PLACE))
    assert task_answers(alone)[0].items[-1].endswith("No change of it can be tested.")


def test_many_arms_are_cut_and_counted():
    rows = [row(f"arm{k}", -k / 1000) for k in range(30)]
    (answer,) = task_answers(content(base(), *rows))
    (text,) = answer.items
    assert text.startswith("Undecided: arm29 −0.029")
    assert text.endswith("; and 24 more.")


def test_published_values_stand_beside_the_own_ones():
    rows = [base()._replace(published=0.6404), row("a")._replace(published=0.62)]
    (answer,) = task_answers(content(*rows, published_source="a talk"))
    wanted = "Published accuracy on test (a talk): none 0.640, here 0.600; a 0.620, here 0.600."
    assert answer.items[-1] == wanted


def test_faults_of_a_study(runs):
    whole = content(base(), row("a", -0.03, 0.01), runs=runs, n_planned=2)
    assert faults(whole) == []
    assert faults(whole._replace(n_planned=5)) == ["3 of 5 runs have no result."]
    assert faults(whole._replace(warnings=("Mixed code: x | y",))) == ["Mixed code: x | y."]
    assert "One seed" in faults(whole._replace(seeds=(3,)))[0]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((row("a", -0.03, 0.01),), "Without them no verdict changes."),
        (
            (row("a", -0.01, 0.2),),
            "Without them the verdict is, for a on wic “undecided” in place of “lower”.",
        ),
        ((base(),), "Without them the verdict is, for a on wic “not tested” in place of “lower”."),
        ((), "Without them there is nothing to compare."),
    ],
)
def test_degenerate_runs_are_told_with_what_they_change(runs, rows, wanted):
    broken = (runs[0], runs[1]._replace(degenerate="one class"))
    found = content(base(), row("a", -0.03, 0.01), runs=broken, rows_without_degenerate=rows)
    (text,) = faults(found)
    assert text.startswith("1 of 2 runs are degenerate (a), and count in all numbers")
    assert text.endswith(wanted)


@pytest.fixture
def runs():
    return tuple(StudyRun("wic", arm, 0, {KEY: 0.6}) for arm in ("none", "a"))


def test_failed_seeds_stand_beside_the_verdict():
    rows = [
        base()._replace(n_failed=1),
        row("a", -0.03, 0.01)._replace(n_failed=4),
        row("b", 0.001, 0.9, p_equivalent=0.01)._replace(n_failed=2),
        row("c", 0.004, 0.6, n_for_a_point=37)._replace(n_failed=3),
        row("d", 0.02, None, n=1)._replace(n_failed=7),
    ]
    (answer,) = task_answers(content(*rows, arms="abcd", margin=0.01))
    said = "of 8 seeds failed: these numbers are of the others"
    assert answer.title.endswith(f"baseline none 0.600, 1 {said})")
    assert answer.items == [
        f"Lower: a −0.030 [−0.040, −0.020], p = 0.010, 4 {said}.",
        f"The same within ±0.01: b +0.001 [−0.009, +0.011], equivalence p = 0.010, 2 {said}.",
        "Undecided: c +0.004 [−0.006, +0.014], p = 0.600, about 37 seeds would show 0.01, "
        f"3 {said}.",
        f"Not tested: d (+0.020 on one seed, 7 {said}).",
    ]


def test_the_answer_says_that_dev_is_the_best_of_several():
    rows = [
        line._replace(best_of="7")
        for line in (base("val/accuracy"), row("a", -0.03, 0.01, key="val/accuracy"))
    ]
    (answer,) = task_answers(content(*rows))
    assert "N = 1,400, dev: best of 7 evaluations of each run, n = 8 seeds" in answer.title
    (of_test,) = task_answers(content(*rows, base(), row("a")))
    assert "best of" not in of_test.title


@pytest.mark.parametrize("p_holm", [0.001, 0.9, None])
def test_nothing_is_claimed_beside_degenerate_runs(p_holm):
    said = "8 of 8 runs of none are degenerate"
    of_score = row("a", 0.03, p_holm, p_equivalent=0.001)._replace(degenerate=said)
    of_place = row("a", 0.2, 0.001, key=PLACE)._replace(degenerate=said)
    found = content(base(), of_score, base(PLACE), of_place, arms=("a",), margin=0.02)
    assert verdict(of_score) == verdict(of_place) == "no claim"
    assert summary(found) == (
        "Nothing can be said of any arm against the baseline none: that takes at least two seeds "
        "that both have, with differences that are not all equal, and no degenerate runs."
    )
    (answer,) = task_answers(found)
    assert answer.items == [
        f"No claim: a +0.030 [+0.020, +0.040], {said}.",
        "IsoScore, bias-corrected (1 = isotropic), layer 6, tokens: baseline 0.600. No claim, for "
        "degenerate runs: a.",
    ]
    both = content(base(), of_score, row("b", -0.03, 0.01), margin=0.02)
    assert "Lower: b." in summary(both)
    assert summary(both).endswith("No claim, for degenerate runs: a.")
