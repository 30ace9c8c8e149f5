"""What is reported before the numbers and beside them, in every kind of table."""

from isotrain.results.findings import sentences
from isotrain.results.frame import study_rows
from isotrain.results.result import cautions
from isotrain.results.runs import Run
from tests.results.small_tables import STUDY, lost, result, runs, tex, text


def test_cautions_count_by_task_method_and_reason():
    found = result(runs(), gaps=lost(), changes=["seeds 8-9 were added"])
    assert sentences(cautions(found)) == [
        "Failed, so that the numbers are of the other seeds: rte, protect_labels_1.0: 2 of 4 seeds "
        "failed (NonFiniteError).",
        "Not finished: rte, none: 1 of 4 seeds not run; wic, none: 1 of 4 seeds not run.",
        "Changed since the first run started: seeds 8-9 were added.",
    ]
    assert cautions(result(runs())) == []


def test_scores_of_a_part_of_the_examples_say_so_in_every_table():
    some = [run._replace(limited="64 of the 277 examples of dev") for run in runs()[:4]]
    found = [*some, *runs()[4:]]
    message = "64 of the 277 examples of dev: rte none 0–3"
    assert sentences(cautions(result(found))) == [f"Scores of a fixed random subset: {message}."]
    assert message in " ".join(text(found).split())
    assert message.replace("–", "--") in " ".join(tex(found).split())


def test_what_was_lost_of_the_input_is_reported():
    message = "left out of test: 3,000 (no gold)"
    some = [run._replace(lost=message) for run in runs()[:4]]
    expected = [f"Cut or left out of the input: {message}: rte none 0–3."]
    assert sentences(cautions(result([*some, *runs()[4:]]))) == expected


def test_what_no_difference_can_reach_is_reported():
    """8 pairs by flips of signs: p is 1/128 at the least, and 7/128 is above 0.05."""
    seeds = range(8)
    none = [0.6 + 0.01 * (k % 3) for k in seeds]
    methods = {"none": (), **{f"a{k}": () for k in range(7)}}
    for n_methods, is_reported in ((6, False), (7, True)):
        own = dict(list(methods.items())[: n_methods + 1])
        study = STUDY.model_copy(update=dict(methods=own, seeds=tuple(seeds), published=None))
        found = [
            Run(
                "rte",
                method,
                k,
                {"val/accuracy": none[k] + (method != "none") * (0.1 + 0.01 * k)},
                {},
            )
            for method in own
            for k in seeds
        ]
        found = [run._replace(shown={"val/accuracy": 277}) for run in found]
        said = "8 pairs among 7 comparisons cannot reach Holm p < .050 by sign flips"
        assert (said in " ".join(text(found, study).split())) == is_reported
        rows = study_rows(study, found)
        assert all((row.p_holm or 0) >= 0.05 for row in rows if row.difference) == is_reported
