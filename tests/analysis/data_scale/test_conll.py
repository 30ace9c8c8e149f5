"""Files in columns, entities of tags, and their F1."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from isotrain.analysis.data_scale.given import Entity, Tagged, conll_file, entities, read_conll

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
        ("a O\nb\n", 2, "got 1 columns"),
        ("a\nb O\n", 1, "got 1 columns"),
        ("a X O\nb O\n", 2, "got 2 columns"),
        ("a O\n\nb S-PER\n", 3, "O, B-kind or I-kind, got 'S-PER'"),
        ("a O\nb NNP\n", 2, "O, B-kind or I-kind"),
        ("a B-\n", 1, "O, B-kind or I-kind"),
        (b"a O\n\xff O\n", 2, "UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, line, told):
    with pytest.raises(ValueError, match=told) as refused:
        read(tmp_path, text)
    assert f"train.txt:{line}: " in str(refused.value)


@pytest.mark.parametrize("text", ["", "\n\n", "-DOCSTART- O\n\n"])
def test_a_file_without_sentences_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="no sentence"):
        read(tmp_path, text)


def test_the_file_of_a_split_is_found_by_its_usual_names(tmp_path):
    assert conll_file(tmp_path, "dev") is None
    for name in ("valid.conll", "dev.conll", "dev.txt"):
        (tmp_path / name).write_text("a O\n")
        assert conll_file(tmp_path, "dev") == tmp_path / name
    assert conll_file(tmp_path, "train") is None
    assert conll_file(Path(tmp_path / "absent"), "test") is None


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O O", []),
        ("B-P I-P O", [("P", 0, 2)]),
        ("I-P I-P O", [("P", 0, 2)]),
        ("B-P B-P", [("P", 0, 1), ("P", 1, 2)]),
        ("I-P B-P I-P", [("P", 0, 1), ("P", 1, 3)]),  # IOB1: neighbours of one kind
        ("I-P I-L", [("P", 0, 1), ("L", 1, 2)]),
        ("B-P I-L I-L O I-P", [("P", 0, 1), ("L", 1, 3), ("P", 4, 5)]),
        ("O I-A-B", [("A-B", 1, 2)]),
    ],
)
def test_entities_of_both_schemes(tags, found):
    assert entities(tags.split(" ")) == {Entity(*one) for one in found}


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
        assert {tuple(one) for one in entities(tags)} == slow_entities(tags)
