"""Published figures beside measured ones: which record, which verdict, what is refused."""

import pytest

from isotrain.analysis.published import (
    Published,
    beside,
    check_comparable,
    disagreements,
    read_published,
)

ENTRY = {
    "encoder": "bert",
    "where": {"set": "stsb", "layer": 3},
    "column": "spearman",
    "value": 54.09,
    "tolerance": 0.05,
    "source": "a paper",
}
FIGURE = Published(**ENTRY)
RECORDS = [
    {"weights": "after", "set": "stsb", "layer": 3, "spearman": 10.0},
    {"weights": "before", "set": "stsb", "layer": 2, "spearman": 20.0},
    {"weights": "before", "set": "stsb", "layer": 3, "n": 5, "spearman": None},
    {"weights": "before", "set": "stsb", "layer": 3, "spearman": 54.12},
    {"weights": "before", "set": "stsb", "layer": 3, "spearman": 99.0},
]


def test_the_first_record_that_a_figure_is_of():
    (found,) = beside([FIGURE], RECORDS, "bert")
    assert found.here == 54.12  # not after the run, not of another layer, not without a value
    assert found.is_judged
    assert found.agrees
    assert disagreements([found]) == []


@pytest.mark.parametrize(
    "figure", [FIGURE._replace(encoder="another"), FIGURE._replace(tolerance=None)]
)
def test_another_encoder_or_no_tolerance_is_shown_and_not_judged(figure):
    (found,) = beside([figure._replace(value=0.0)], RECORDS, "bert")
    assert found.here == 54.12
    assert not found.is_judged
    assert disagreements([found]) == []


def test_a_figure_that_was_not_measured_disagrees():
    (found,) = beside([FIGURE._replace(column="pearson")], RECORDS, "bert")
    assert found.here is None
    assert disagreements([found]) == [
        "pearson (set stsb, layer 3): published 54.09 ± 0.05, measured nothing"
    ]


def test_a_check_without_figures_is_refused():
    check_comparable([FIGURE], "bert")
    for figures in ([], [FIGURE._replace(encoder="x")], [FIGURE._replace(tolerance=None)]):
        with pytest.raises(ValueError, match="figure of encoder bert with a tolerance, and the"):
            check_comparable(figures, "bert")


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY | {"layer": 3},
        {key: ENTRY[key] for key in ENTRY if key != "where"},
        ENTRY | {"value": "high"},
        ENTRY | {"tolerance": "0.1"},
        ENTRY | {"where": "stsb"},
    ],
)
def test_an_entry_of_another_form_is_refused(entry):
    with pytest.raises(ValueError, match=r"list\[Published\]\n1\."):
        read_published([ENTRY, entry])
