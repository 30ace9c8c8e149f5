"""Published figures beside measured ones: which record, which verdict, what is rejected."""

import pytest

from isotrain.analysis.published import Published, beside, read_published

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


def verdict_of(**changes):
    (found,) = beside([FIGURE._replace(**changes)], RECORDS, "bert")
    return found.here, found.verdict


def test_the_first_record_that_a_figure_is_of():
    # Not after the run, not of another layer, not without a value.
    assert verdict_of() == (54.12, "agrees")
    assert verdict_of(value=54.0) == (54.12, "differs")
    assert verdict_of(value=54.07, tolerance=0.05) == (54.12, "agrees")  # in floats more than .05
    assert verdict_of(encoder="another") == (54.12, None)
    assert verdict_of(tolerance=None) == (54.12, None)
    assert verdict_of(column="pearson") == (None, "not measured")


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
def test_an_entry_of_another_form_is_rejected(entry):
    with pytest.raises(ValueError, match=r"list\[Published\]\n1\."):
        read_published([ENTRY, entry])
