"""The answer of a study in words says what its numbers support, and no more."""

import pytest

from isotrain.pages.study_answer import faults, summary, task_answers, verdict
from isotrain.results.frame import WITHOUT, Row
from isotrain.results.result import Result
from isotrain.results.runs import Gap, Run
from isotrain.studies.definition import Study

KEY, PLACE = "test/accuracy", "isotropy/isoscore_corrected/layer_06/tokens"


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


def base(key=KEY, task="wic", n=8):
    return Row("all", task, key, "none", "1400", n, 0.6, 0.02, baseline="none")


def content(*rows, methods=("a", "b", "c"), tasks=("wic",), runs=(), n_planned=0, **more):
    study = Study(
        name="s",
        tasks=dict.fromkeys(tasks, ()),
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
        (base(), "untested"),
    ],
)
def test_verdicts(given, wanted):
    assert verdict(given) == wanted


def test_the_summary_names_every_method_with_its_tasks():
    rows = []
    for task, effect in (("wic", 0.03), ("stsb", -0.03)):
        rows += [base(task=task), row("a", effect, 0.01, task=task), row("b", task=task)]
        rows += [row("c", 0.0, 0.9, task=task, p_tost=0.01), row("d", 0.0, None, task=task)]
    found = content(*rows, methods=("a", "b", "c", "d"), tasks=("wic", "stsb"))
    assert summary(found) == (
        "Higher score than the baseline none: a (wic). Lower: a (stsb). The same within ±1.0 "
        "points: c (wic, stsb). Undecided: b (wic, stsb). Not tested: d (wic, stsb)."
    )
    one = content(base(), row("b"), methods=("b",))
    assert summary(one) == (
        "No method is shown to score higher or lower than the baseline none. Undecided: b."
    )


def test_each_method_comes_with_its_numbers_the_largest_difference_first():
    rows = [
        base(),
        row("a", -0.01, 0.02),
        row("b", -0.03, 0.0004),
        row("c", 0.002, 0.9, p_tost=0.013),
        row("d", 0.004, 0.6, seeds_needed=37),
        row("e", 0.003, 0.6, seeds_needed=7),
    ]
    (answer,) = task_answers(content(*rows, methods="abcde"))
    assert answer.title == "wic: accuracy on test, N = 1,400, n = 8 seeds, baseline none 60.0"
    assert answer.items == [
        "Lower: b −3.0 [−4.0, −2.0], p < .001; a −1.0 [−2.0, 0.0], p = .020.",
        "The same within ±1.0 points: c +0.2 [−0.8, +1.2], TOST p = .013.",
        "Undecided: d +0.4 [−0.6, +1.4], p = .600, about 37 seeds would show one point; "
        "e +0.3 [−0.7, +1.3], p = .600, about 7 seeds would show one point, and 8 were run.",
    ]


def test_what_takes_something_back_from_a_difference():
    found = row("a", 0.004, 0.01, p_tost=0.001, both_low=-0.01, both_high=0.018)
    (answer,) = task_answers(content(base(), found))
    (text,) = answer.items
    said = "p = .010, yet within ±1.0 points, but [−1.0, +1.8] as CI over seeds and examples."
    assert text.endswith(said)
    apart = found._replace(both_low=0.001, both_high=0.007)
    (answer,) = task_answers(content(base(), apart))
    assert "seeds and examples" not in answer.items[0]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (row("a", 0.02, None, n=1), "+2.0 on 1 seed, too few for a test"),
        (base()._replace(method="a"), "no seed in common with the baseline"),
        (base()._replace(method="a", difference=0.0, pairs=8), "0.0 on every seed"),
    ],
)
def test_why_a_method_is_not_tested(found, reason):
    (answer,) = task_answers(content(base(), found, row("b")))
    assert answer.items[-1] == f"Not tested: a ({reason})."


def test_isotropy_stands_beside_the_verdict_on_the_score():
    rows = [base(), row("a", -0.03, 0.01), row("b"), row("c", 0.0, 0.9, p_tost=0.01)]
    of_place = [base(PLACE), row("a", 0.2, 0.001, key=PLACE), row("b", -0.1, 0.001, key=PLACE)]
    found = content(*rows, *of_place, row("c", 0.001, 0.9, key=PLACE))
    assert task_answers(found)[0].items[-1] == (
        "IsoScore, bias-corrected (1 = isotropic), layer 6, tokens: baseline 0.600. Higher with a "
        "+0.200 [+0.190, +0.210], which scores lower. Lower with b −0.100 [−0.110, −0.090], which "
        "has an undecided score."
    )
    output = "isotropy/isoscore_corrected/pooled/after"
    both = content(*rows, *of_place, base(output), row("a", 0.3, 0.001, key=output))
    layer, after = task_answers(both)[0].items[-2:]
    assert ("layer 6, tokens" in layer, "site pooled, output" in after) == (True, True)
    assert "Higher with a +0.300" in after
    same = content(*rows, base(PLACE), row("a", 0.001, 0.9, key=PLACE))
    assert task_answers(same)[0].items[-1].endswith("No method is shown to change it.")
    assert task_answers(content(base(), base(PLACE)))[0].items == []  # nothing to compare with
    alone = content(*rows, base(PLACE), row("a", 0.1, None, key=PLACE))
    assert task_answers(alone)[0].items[-1].endswith("No change can be tested.")


def test_faults_of_a_study(runs):
    whole = content(base(), row("a", -0.03, 0.01), runs=runs, n_planned=2)
    assert faults(whole) == []
    assert faults(whole._replace(n_planned=5)) == ["3 of 5 runs have no result."]
    gap = Gap("wic", "a", 0, "not run")
    assert faults(whole._replace(gaps=[gap])) == ["Not finished: wic, a: 1 of 8 seeds not run."]
    one_seed = content(base(), seeds=(3,))
    assert "One seed" in faults(one_seed)[0]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((row("a", -0.03, 0.01),), "Leaving these runs out changes no verdict."),
        (
            (row("a", -0.01, 0.2),),
            "Leaving these runs out changes the verdict of a on wic from “lower” to “undecided”.",
        ),
        (
            (base(),),
            "Leaving these runs out changes the verdict of a on wic from “lower” to “not tested”.",
        ),
        ((), "Without these runs there is nothing to compare."),
    ],
)
def test_collapsed_predictions_are_reported_with_what_they_change(runs, rows, wanted):
    broken = (runs[0], runs[1]._replace(degenerate="one class"))
    without = [one._replace(runs=WITHOUT) for one in rows]
    found = content(base(), row("a", -0.03, 0.01), *without, runs=broken)
    (text,) = faults(found)
    assert text.startswith("1 of 2 runs have collapsed predictions (methods: a). They count in all")
    assert text.endswith(wanted)


@pytest.fixture
def runs():
    return [Run("wic", method, 0, {KEY: 0.6}, {}) for method in ("none", "a")]


@pytest.mark.parametrize("p_holm", [0.001, 0.9, None])
def test_nothing_is_claimed_beside_degenerate_runs(p_holm):
    said = "8 of 8 runs of method none collapsed"
    of_score = row("a", 0.03, p_holm, p_tost=0.001)._replace(collapsed=said)
    of_place = row("a", 0.2, 0.001, key=PLACE)._replace(collapsed=said)
    found = content(base(), of_score, base(PLACE), of_place, methods=("a",))
    assert verdict(of_score) == verdict(of_place) == "no claim"
    assert summary(found) == (
        "Nothing can be said of any method against the baseline none; that takes at least 3 "
        "seeds that both have, with differences that are not all equal, and no collapsed "
        "predictions."
    )
    (answer,) = task_answers(found)
    assert answer.items == [
        f"No claim: a +3.0 [+2.0, +4.0], {said}.",
        "IsoScore, bias-corrected (1 = isotropic), layer 6, tokens: baseline 0.600. No claim, for "
        "collapsed predictions: a.",
    ]
    both = content(base(), of_score, row("b", -0.03, 0.01))
    assert "Lower: b." in summary(both)
    assert summary(both).endswith("No claim, for collapsed predictions: a.")
