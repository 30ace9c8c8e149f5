"""The file of the diagnostic set, and its correlation."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from isotrain.analysis.data_scale.given import CATEGORIES, matthews, read_diagnostic

HEADER = "\t".join([*CATEGORIES, "Domain", "Premise", "Hypothesis", "Label"])
ROW = "Quantifiers\t\tNegation;Double negation\t\tNews\tA cat.\tNo cat.\tcontradiction"


def written(tmp_path, *lines):
    file = tmp_path / "diagnostic.tsv"
    file.write_bytes("\n".join(lines).encode())
    return file


def test_rows_become_those_of_snli_and_may_be_of_several_categories(tmp_path):
    other = "\t\t\t \tNews\tA \"dog.\tA pet.\tentailment"  # fmt: skip
    found = read_diagnostic(written(tmp_path, HEADER, ROW + "\r", other, ""))
    assert found.rows == [
        {"sentence1": "A cat.", "sentence2": "No cat.", "label": 2},
        {"sentence1": 'A "dog.', "sentence2": "A pet.", "label": 0},
    ]
    masks = {name: mask.tolist() for name, mask in found.category.items()}
    assert masks == {
        "all": [True, True],
        "Lexical Semantics": [True, False],
        "Predicate-Argument Structure": [False, False],
        "Logic": [True, False],
        "Knowledge": [False, False],
    }


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([HEADER.replace("Logic", "Logik"), ROW], "tsv:1: lacks the columns Logic"),
        ([HEADER, ROW, ROW + "\tmore"], "Expected 8 fields in line 3, saw 9"),
        ([HEADER, "", ROW.replace("contradiction", "maybe")], "tsv, row 1: Label must be one of"),
        ([HEADER], "no row"),
    ],
)
def test_a_bad_file_is_told_with_its_line(tmp_path, lines, told):
    with pytest.raises(ValueError, match=told):
        read_diagnostic(written(tmp_path, *lines))


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("skill", [0.0, 0.4, 1.0])
def test_the_correlation_is_that_of_sklearn(n_classes, skill):
    draw = np.random.default_rng(0)
    gold = draw.integers(n_classes, size=200)
    other = draw.integers(n_classes, size=200) // 2  # not all classes
    predicted = np.where(draw.random(200) < skill, gold, other)
    other = np.roll(predicted, 1)
    times = draw.integers(3, size=200)
    found = matthews(gold, np.stack([predicted, other]), np.stack([np.ones(200), times]))
    for p, own in enumerate((predicted, other)):
        assert found[0, p] == pytest.approx(matthews_corrcoef(gold, own), abs=1e-12)
        repeated = matthews_corrcoef(np.repeat(gold, times), np.repeat(own, times))
        assert found[1, p] == pytest.approx(repeated, abs=1e-12)


def test_one_class_alone_is_chance():
    for gold, own in (([0, 1, 2], [1, 1, 1]), ([1, 1, 1], [1, 1, 1])):
        assert matthews(np.array(gold), np.array([own]), np.ones((1, 3))).tolist() == [[0]]
