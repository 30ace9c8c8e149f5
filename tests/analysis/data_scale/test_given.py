"""Files that are given: tags in columns, and the diagnostic set."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from isotrain.analysis.data_scale.examples import (
    CATEGORIES,
    Tagged,
    entities,
    read_conll,
    read_diagnostic,
)
from isotrain.analysis.data_scale.measure import matthews

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
"""


def read(tmp_path, text):
    file = tmp_path / "train.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_conll(file)


def test_columns_sentences_and_documents(tmp_path):
    expected = [
        Tagged(["EU", "rejects", "German"], ["I-ORG", "O", "I-MISC"]),
        Tagged(["Peter", "Blackburn"], ["I-PER", "I-PER"]),
    ]
    assert read(tmp_path, CONLL_2003) == expected
    assert read(tmp_path, CONLL_2003.replace("\n", " \r\n").replace(" NNP", "\tNNP")) == expected
    two = "-DOCSTART- O\na O\nb B-X\n-DOCSTART- O\nc O"
    assert read(tmp_path, two) == [Tagged(["a", "b"], ["O", "B-X"]), Tagged(["c"], ["O"])]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a O\nb\n", 2, "got 'b'"),
        ("a\nb O\n", 1, "got 'a'"),
        ("a X O\nb O\n", 2, "as many columns as the first one"),
        ("a O\n\nb S-PER\n", 3, "O, B-kind or I-kind, got 'b S-PER'"),
        ("a B-\n", 1, "O, B-kind or I-kind"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, line, told):
    with pytest.raises(ValueError, match=told) as refused:
        read(tmp_path, text)
    assert f"train.txt:{line}: " in str(refused.value)


def slow_entities(tags):
    """From the rule of the shared task: where a chunk starts and where it ends, place by place."""

    def split(place):
        if not 0 <= place < len(tags) or tags[place] == "O":
            return "O", ""
        return tags[place][0], tags[place][2:]

    def starts(place):
        (before, old), (mark, new) = split(place - 1), split(place)
        return mark == "B" or (mark == "I" and (before == "O" or old != new))

    def ends(place):  # behind `place`
        (mark, kind), (after, new) = split(place), split(place + 1)
        return mark != "O" and (after in "BO" or kind != new)

    found = set()
    for start, stop in itertools.combinations_with_replacement(range(len(tags)), 2):
        inner = range(start, stop)
        if starts(start) and ends(stop) and not any(ends(place) for place in inner):
            found.add((split(start)[1], start, stop + 1))
    return found


def test_entities_agree_with_the_rule_on_all_short_sequences():
    marks = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    for tags in itertools.product(marks, repeat=5):
        assert entities(tags) == slow_entities(tags)
    assert entities(["O", "I-A-B"]) == {("A-B", 1, 2)}


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
        ([HEADER.replace("Logic", "Logik"), ROW], "tsv lacks the columns Logic"),
        ([HEADER, ROW, ROW + "\tmore"], "Expected 8 fields in line 3, saw 9"),
        (
            [HEADER, "", ROW.replace("contradiction", "maybe")],
            "every Label must be one of .* got row 1: 'maybe'",
        ),
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
