"""The whole analysis: what context is worth, what is compared with what, what is told."""

import json
import random

import numpy as np
import pytest
import torch
from torch import nn

from isotrain.analysis.data_scale.analysis import DataScale
from isotrain.analysis.data_scale.measures import by_unseen
from isotrain.encoders.static import SPECIALS, word_tokenizer
from isotrain.tasks.data.sources import LocalSource
from isotrain.types import EncoderOutput
from tests.analysis.runs import records_of

NAMES, VERBS, THINGS = ("jordan", "austin", "paris"), ("sees", "met"), ("in", "near")
WORDS = [*SPECIALS.values(), *NAMES, *VERBS, *THINGS, "the", "."]


class Neighbour(nn.Module):
    """Block 1 adds the product with the next word, turned: it tells which word is before which."""

    n_blocks, max_positions, is_causal, source_id = 1, None, False, "neighbours"

    def __init__(self, width=32):
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = nn.Embedding(len(WORDS), width)
        self.width, self.tokenizer = width, word_tokenizer(WORDS, lowercase=True)

    def forward(self, batch, after_block):
        states_ATD = self.embeddings(batch.input_ids)
        last_ATD = states_ATD + states_ATD * states_ATD.roll(-1, dims=1).flip(-1)
        return EncoderOutput((states_ATD, last_ATD), last_ATD)


def write_reviews(folder, n_train=160, n_dev=60):
    """The order of two names decides the class: neighbours alone tell, the words do not."""
    (folder / "sst2").mkdir(parents=True)
    draw = random.Random(0)
    for split, n in (("train", n_train), ("dev", n_dev)):
        lines = []
        for i in range(n):
            label, rest = i % 2, f"{draw.choice(VERBS)} the {draw.choice(THINGS)}"
            pair = ("jordan paris", "paris jordan")[label]
            lines.append(json.dumps({"sentence": f"{rest} {pair} .", "label": label}))
        (folder / "sst2" / f"{split}.jsonl").write_text("\n".join(lines))
    return LocalSource(str(folder))


@pytest.fixture
def subject(subject_of, data_dir):
    return subject_of(Neighbour().eval(), LocalSource(str(data_dir)))


@pytest.fixture
def vectors(tmp_path):
    file = tmp_path / "vectors.txt"
    draw = np.random.default_rng(0)
    words = ["the", "dog", "cat", "horse", "bird", *NAMES, *VERBS]
    file.write_text("".join(f"{w} {' '.join(map(str, draw.normal(size=6)))}\n" for w in words))
    return str(file)


def best(records, features):
    scores = [r for r in records if r["kind"] == "score" and r["features"] == features]
    largest = max(r["size"] for r in scores)
    return np.mean([r["score"] for r in scores if r["size"] == largest])


def test_what_only_context_tells_is_in_the_contextual_features_alone(subject, tmp_path):
    source = write_reviews(tmp_path / "data")
    records = records_of(DataScale(tasks=["sst2"], seeds=2), subject._replace(source=source))
    assert best(records, "encoder") == 1
    assert best(records, "random") < 0.7


MEASURED = []  # once, for all tests that look at them


@pytest.fixture
def records(subject, vectors):
    if not MEASURED:
        analysis = DataScale(static=vectors, seeds=3, smallest=16, factor=2.0)
        MEASURED.extend(records_of(analysis, subject))
    return [dict(record) for record in MEASURED]


def test_every_kind_of_features_has_a_score_for_each_seed_and_size(records):
    for task in ("rte", "snli"):
        for features in ("static", "random", "encoder"):
            own = [r for r in records if (r["task"], r["features"]) == (task, features)]
            (about,) = (r for r in own if r["kind"] == "features")
            scores = [r for r in own if r["kind"] == "score"]
            assert (about["n_train"], about["n_scored"]) == (96, 32)
            sizes = [(r["seed"], r["size"]) for r in scores]
            assert sizes == [(k, n) for k in range(3) for n in (16, 32, 64, 96)]
            assert all(0 <= r["score"] <= 1 and r["n_scored"] == 32 for r in scores)
            assert about["width"] == {"static": 6, "random": 32, "encoder": 32}[features]
            assert about["inputs"] == 4 * about["width"]
            assert 0 < about["unknown_share"] < 1


def test_all_features_are_given_the_same_training_examples(records):
    told = {}
    for r in (r for r in records if r["kind"] == "score"):
        key = (r["task"], r["seed"], r["size"])
        told.setdefault(key, set()).add((r["unseen_share"], r["n_few_unseen"]))
    assert all(len(found) == 1 for found in told.values())
    smallest = [r for r in records if r["kind"] == "score" and r["size"] == 16]
    by_seed = {tuple(r["score"] for r in smallest if r["seed"] == k) for k in range(3)}
    assert len(by_seed) == 3, "each seed draws its own"


def test_caps_leave_the_first_examples_of_one_draw(subject):
    analysis = DataScale(tasks=["rte"], seeds=1, max_rows=40, max_evaluated=20, smallest=10)
    own = [r for r in records_of(analysis, subject) if r["kind"] == "score"]
    assert {r["size"] for r in own} == {10, 40}
    assert {r["n_scored"] for r in own} == {20}


def test_the_halves_are_those_of_the_words_that_training_lacks():
    found = by_unseen(np.array([True, False, True, True]), np.array([0.0, 0.5, 0.25, 1.0]))
    assert (found["score"], found["n_scored"], found["unseen_share"]) == (0.75, 4, 0.4375)
    assert (found["score_few_unseen"], found["n_few_unseen"]) == (1.0, 2)
    assert (found["score_many_unseen"], found["n_many_unseen"]) == (0.5, 2)
    everything = by_unseen(np.array([True, True]), np.zeros(2))
    assert (everything["unseen_share"], everything["score_many_unseen"]) == (0, None)


def test_after_a_run_what_training_leaves_as_it_was_is_not_measured_again(subject, vectors):
    analysis = DataScale(tasks=["rte"], static=vectors)
    weights = ("as given", "before", "after")
    names = [[p.name for p in analysis.parts(subject._replace(weights=one))] for one in weights]
    assert names[0] == names[1] == ["rte-static", "rte-random", "rte-encoder"]
    assert names[2] == ["rte-encoder"]


def test_random_vectors_are_drawn_anew_for_each_seed(subject):
    analysis = DataScale(tasks=["rte"])
    first, again, other = (
        analysis._encoder(subject, "random", seed).embeddings.weight for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    # All seeds are given all examples: what differs at the last size is their vectors.
    plain = {"tasks": ["rte"], "seeds": 4, "smallest": 96}
    own = [r for r in records_of(DataScale(**plain), subject) if r["kind"] == "score"]
    assert len({r["score"] for r in own if r["features"] == "random"}) > 1


def test_what_is_not_there_is_told_before_anything_is_read(data_dir, tmp_path):
    source = LocalSource(str(data_dir))
    assert DataScale().missing(source) == []
    assert [one.name for one in DataScale().data_sets(source)] == ["rte", "snli"]
    (told,) = DataScale(tasks=["sst2"]).missing(source)
    assert "sst2" in told
    assert len(DataScale().missing(LocalSource(str(tmp_path)))) == 3
