"""Files that are given: tags in columns, and the diagnostic set."""

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from isotrain.analysis.data_scale.measures import Tagged, read_conll
from isotrain.results.row_bootstrap import matthews

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
