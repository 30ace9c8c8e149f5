"""The whole analysis: what context is worth, what is compared with what, what is reported."""

import json
import random

import numpy as np
import pytest
import torch
from torch import nn

from isotrain.analysis.data_scale.analysis import DataScale
from isotrain.analysis.data_scale.measures import by_unseen, entities, tally, unseen_shares
from isotrain.analysis.types import Outcome
from isotrain.encoders.static import SPECIALS, word_tokenizer
from isotrain.tasks.data.sources import LocalSource
from isotrain.types import EncoderOutput
from tests.analysis.annotated_rows import write_annotated
from tests.analysis.runs import records_of

NAMES, VERBS, THINGS = ("jordan", "austin", "paris"), ("sees", "met"), ("in", "near")
WORDS = [*SPECIALS.values(), *NAMES, *VERBS, *THINGS, "the", "."]


class Neighbour(nn.Module):
    """Block 1 adds the vector of the next word, turned: what stands before what is read off it."""

    n_blocks, max_positions, is_causal, source_id = 1, None, False, "neighbours"

    def __init__(self, width=32):
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = nn.Embedding(len(WORDS), width)
        self.width, self.tokenizer = width, word_tokenizer(WORDS, lowercase=True)

    def forward(self, batch, after_block):
        states_ATD = self.embeddings(batch.input_ids)
        behind_ATD = states_ATD.roll(-1, dims=1).flip(-1)
        return EncoderOutput((states_ATD, states_ATD + behind_ATD), states_ATD + behind_ATD)


def write_tagged(folder, n_train=120, n_dev=60):
    """A name is a person before a verb and a place elsewhere: its neighbour alone tells."""
    folder.mkdir(exist_ok=True)
    draw = random.Random(0)
    for split, n in (("train", n_train), ("dev", n_dev)):
        lines = []
        for _ in range(n):
            person, place = draw.choice(NAMES), draw.choice(NAMES)
            words = [person, draw.choice(VERBS), "the", draw.choice(THINGS), place, "."]
            tags = ["B-PER", "O", "O", "O", "B-LOC", "O"]
            lines += [f"{w} {t}" for w, t in zip(words, tags, strict=True)] + [""]
        (folder / f"{split}.txt").write_text("\n".join(lines))
    return folder


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
    folder = str(write_tagged(tmp_path / "conll"))
    plain = {"tasks": [], "conll": folder, "window": 0, "seeds": 2, "factor": 4.0}
    records = records_of(DataScale(**plain), subject)
    assert best(records, "encoder") == 1
    assert best(records, "random") < 0.7
    with_neighbours = records_of(DataScale(**(plain | {"window": 1})), subject)
    assert best(with_neighbours, "random") == 1


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
    message = {}
    for r in (r for r in records if r["kind"] == "score"):
        key = (r["task"], r["seed"], r["size"])
        message.setdefault(key, set()).add((r["unseen_share"], r["n_few_unseen"]))
    assert all(len(found) == 1 for found in message.values())
    smallest = [r for r in records if r["kind"] == "score" and r["size"] == 16]
    by_seed = {tuple(r["score"] for r in smallest if r["seed"] == k) for k in range(3)}
    assert len(by_seed) == 3, "each seed draws its own"


def test_caps_leave_the_first_examples_of_one_draw(subject):
    analysis = DataScale(tasks=["rte"], seeds=1, max_rows=40, max_evaluated=20, smallest=10)
    own = [r for r in records_of(analysis, subject) if r["kind"] == "score"]
    assert {r["size"] for r in own} == {10, 40}
    assert {r["n_scored"] for r in own} == {20}


def test_the_halves_are_those_of_the_words_that_training_lacks(subject, tmp_path):
    analysis = DataScale(tasks=[], conll=str(write_tagged(tmp_path / "conll")))
    examples = analysis._examples(subject, "conll", ())
    right = examples.label_N[examples.rows_E[examples.n_train][0] :]
    (chosen,) = np.nonzero([w[0] == "paris" for w in examples.words_E[: examples.n_train]])
    (few,) = unseen_shares(examples, chosen[:3], [3])
    found = by_unseen(tally(examples, right), few)
    assert (found["score"], found["n_scored"]) == (1, 60)
    assert found["n_few_unseen"] + found["n_many_unseen"] == 60
    assert found["score_few_unseen"] == 1
    (none,) = unseen_shares(examples, np.arange(examples.n_train), [examples.n_train])
    everything = by_unseen(tally(examples, right), none)
    assert everything["unseen_share"] == 0
    assert everything["score_many_unseen"] is None


def test_chunks_are_those_of_the_files_and_are_asked_for_by_name(subject, tmp_path):
    write_annotated(tmp_path)
    given = subject._replace(source=LocalSource(str(tmp_path)))
    assert DataScale().missing(given.source), "available has no chunks"
    records = records_of(DataScale(tasks=["chunks"], seeds=1, smallest=8), given)
    about = next(r for r in records if r["kind"] == "features")
    assert (about["n_train"], about["n_scored"], about["split"]) == (45, 45, "test")
    lines = (tmp_path / "conll2000" / "test.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    examples = DataScale(tasks=["chunks"])._examples(given, "chunks", ())
    assert sorted(examples.gold) == sorted(row["chunks"] for row in rows)
    tables = DataScale().tables(Outcome(records, {}))
    notes = next(table.notes for table in tables if table.name == "scores_chunks")
    assert notes[0].startswith("F1 of chunks on 45 examples of chunks (test); n = 1 seeds")
    assert notes[1].endswith("here; an example is a sentence, whose words are classified.")
    (own,) = (
        r for r in records if r["kind"] == "mean" and r["features"] == "encoder" and r["size"] == 45
    )
    assert own["mean"] > 0.8, "chunks follow from the words"
    same = (tmp_path / "conll2000" / "test.jsonl").read_text("utf-8")
    with (tmp_path / "conll2000" / "train.jsonl").open("a", encoding="utf-8") as train:
        train.write("\n" + same)
    assert DataScale(tasks=["chunks"])._examples(given, "chunks", ()).n_train == 45, "no leak"
    assert sorted(examples.texts[45:]) == sorted(" ".join(row["tokens"]) for row in rows)


def test_the_score_of_tags_is_the_harmonic_mean_of_precision_and_recall(subject, tmp_path):
    analysis = DataScale(tasks=[], conll=str(write_tagged(tmp_path / "conll")))
    examples = analysis._examples(subject, "conll", ())
    scored = np.arange(examples.n_train, len(examples.texts))
    class_n, draw = examples.label_N[examples.rows_of(scored)], np.random.default_rng(0)
    wrong_n = draw.random(len(class_n)) < 0.3
    class_n[wrong_n] = draw.integers(len(examples.classes), size=wrong_n.sum())
    gold, own = set(), set()
    for e, gold_tags in zip(scored, examples.gold, strict=True):
        rows = examples.rows_E[e] - examples.rows_E[scored[0]][0]
        tags = [examples.classes[c] for c in class_n[rows]]
        gold |= {(e, *one) for one in entities(gold_tags)}
        own |= {(e, *one) for one in entities(tags)}
    precision, recall = len(gold & own) / len(own), len(gold & own) / len(gold)
    assert 0.2 < precision != recall < 0.9
    score = by_unseen(tally(examples, class_n), np.zeros(len(scored)))["score"]
    assert score == pytest.approx(2 * precision * recall / (precision + recall), abs=1e-12)


def test_heads_of_snli_are_scored_by_category(subject, tmp_path, data_dir):
    content = (data_dir / "snli" / "train.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in content.splitlines()]
    header = "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge"
    lines = [f"{header}\tPremise\tHypothesis\tLabel"]
    for i, row in enumerate(rows):
        marks = ["x" * (i % 2 == 0), "", "x" * (i % 3 == 0), ""]
        lines.append("\t".join([*marks, row["premise"], row["hypothesis"], row["label_text"]]))
    file = tmp_path / "diagnostic.tsv"
    file.write_text("\n".join(lines))
    analysis = DataScale(tasks=["snli"], diagnostic=str(file), seeds=2)
    records = records_of(analysis, subject)
    own = [r for r in records if r["kind"] == "diagnostic"]
    assert len(own) == 2 * 2 * 5
    assert {r["size"] for r in own} == {96}
    n_of = {r["category"]: r["n"] for r in own}
    assert n_of == {
        "all": 96,
        "Lexical Semantics": 48,
        "Predicate-Argument Structure": 0,
        "Logic": 32,
        "Knowledge": 0,
    }
    assert all((r["correlation"] is None) == (r["n"] == 0) for r in own)
    # The same heads as without that file.
    plain = records_of(DataScale(tasks=["snli"], seeds=2), subject)
    assert [r for r in records if r["kind"] == "score"] == [
        r for r in plain if r["kind"] == "score"
    ]
    (table,) = (t for t in analysis.tables(Outcome(records, {})) if t.name == "diagnostic")
    assert [row[:2] for row in table.rows] == [[k, n] for k, n in n_of.items() if n]
    assert "largest size (96)" in table.title
    (mean,) = [r for r in records if r["kind"] == "category" and r["features"] == "encoder"][:1]
    scores = [
        r["correlation"] for r in own if r["features"] == "encoder" and r["category"] == "all"
    ]
    assert mean["mean"] == pytest.approx(np.mean(scores))
    assert mean["low"] < mean["mean"] < mean["high"]
    assert table.rows[0][3] == f"{mean['low']:.3f} to {mean['high']:.3f}"


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


def test_what_is_not_there_is_reported_before_anything_is_read(data_dir, tmp_path):
    source = LocalSource(str(data_dir))
    assert DataScale().missing(source) == []
    assert [one.name for one in DataScale().data_sets(source)] == ["rte", "snli"]
    (message,) = DataScale(tasks=["sst2"]).missing(source)
    assert "sst2" in message
    assert len(DataScale().missing(LocalSource(str(tmp_path)))) == 3
    conll = write_tagged(tmp_path / "conll")
    assert DataScale(tasks=[], conll=str(conll)).missing(LocalSource(str(tmp_path))) == []
