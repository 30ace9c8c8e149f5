"""Senses by neighbours and by a probe: against brute force, and where only the context tells."""

import json
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import f1_score
from torch import nn

from isotrain.analysis.annotated import SENSES, three_parts
from isotrain.analysis.word_senses.analysis import MAJORITY, Occurrences, WordSenses, predictions
from isotrain.encoders.base import Encoder
from isotrain.tasks.data.sources import LocalSource, load_split
from isotrain.types import EncoderOutput
from tests.analysis.runs import of, outcome_of, tiny


def test_neighbours_and_majority_against_brute_force():
    generator = np.random.default_rng(0)
    words = Occurrences(
        generator.normal(size=(60, 4)), generator.integers(0, 3, 60), three_parts(60, seed=0)
    )
    found = predictions(words, 3, [1.0])
    (train, senses), (test, _) = words.of("train"), words.of("test")
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test)]
    wanted = []
    for row in unit[1] @ unit[0].T:
        counts = Counter(senses[np.argsort(-row)[:3]].tolist())
        wanted.append(min(counts, key=lambda sense: (-counts[sense], sense)))
    assert found["neighbours"].predict(test).tolist() == wanted
    assert {*found[MAJORITY].predict(test).tolist()} == {
        Counter(senses.tolist()).most_common()[0][0]
    }


class Previous(Encoder):
    """Layer 0 is the vector of a token, layer 1 that of the token before."""

    def __init__(self):
        tokenizer = tiny().tokenizer
        super().__init__(len(tokenizer), tokenizer, "the token before")
        self.blocks = (nn.Identity(),)

    def forward(self, batch, after_block):
        own = nn.functional.one_hot(batch.input_ids, self.width).float()
        before = own.roll(1, dims=1)
        return EncoderOutput((own, before), before)


@pytest.fixture
def outcome(subject_of, data_dir):
    subject = subject_of(Previous(), LocalSource(str(data_dir)))
    return outcome_of(WordSenses(n_neighbors=1, penalties=[0.001], threshold=100.0), subject)


def test_the_word_itself_tells_nothing_and_its_context_tells_the_sense(outcome, data_dir):
    rows = load_split(LocalSource(str(data_dir)), SENSES, "train")
    for lemma in ("bank", "king"):
        own = [row for row in rows if row["lemma"] == lemma]
        scores = {
            layer: of(outcome, lemma=lemma, method="linear probe", treatment="none", layer=layer)[0]
            for layer in (0, 1)
        }
        assert scores[1]["test"] == 1.0 == scores[1]["macro_f1"]
        (majority,) = of(outcome, lemma=lemma, method=MAJORITY, treatment="none", layer=0)
        assert scores[0]["test"] == majority["test"] < 1.0
        assert scores[0]["n_senses"] == 2
        assert sum(scores[0][f"n_{part}"] for part in ("train", "dev", "test")) == len(own)


def test_the_majority_stands_beside_with_its_f1(outcome):
    for record in of(outcome, method=MAJORITY, treatment="none"):
        share, n = record["test"], record["n_test"]
        gold = [1] * round(share * n) + [0] * round((1 - share) * n)
        assert record["macro_f1"] == pytest.approx(
            f1_score(gold, [1] * n, average="macro", zero_division=0)
        )
        assert record["test_low"] < share < record["test_high"]


def test_a_rare_word_is_left_out_with_the_reason(subject_of, data_dir, tmp_path):
    folder = tmp_path / "senseval2"
    folder.mkdir()
    rows = load_split(LocalSource(str(data_dir)), SENSES, "train")
    one = {"lemma": "rare", "position": 0, "sense": "1"}
    rare = [{**one, "tokens": ["the", word]} for word in ("dog", "cat")]
    kept = [{key: row[key] for key in SENSES.fields} for row in rows if row["lemma"] == "bank"]
    text = "".join(json.dumps(row) + "\n" for row in [*rare, *kept])
    (folder / "all.jsonl").write_text(text)
    subject = subject_of(tiny(), LocalSource(str(tmp_path)))
    found = outcome_of(WordSenses(n_neighbors=1, penalties=[0.001]), subject)
    (record,) = of(found, "word left out")
    assert record["lemma"] == "rare"
    assert record["reason"].startswith("{'train': 2, 'dev': 0, 'test': 0} occurrences, 1 senses")
    assert {row["lemma"] for row in of(found, "senses")} == {"bank"}
