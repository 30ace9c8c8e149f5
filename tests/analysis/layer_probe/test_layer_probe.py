"""Linear probes of the layers: what they read, what they are chosen on, what stands beside."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, spearmanr
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from isotrain.analysis.data_sets import SST2_DATA
from isotrain.analysis.encode import encode_rows, hidden_states
from isotrain.analysis.layer_probe.analysis import (
    LayerProbe,
    distinct_rows,
    features,
    read_examples,
)
from isotrain.metrics.isoscore_corrected import isoscore_corrected
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.tasks.data.sources import LocalSource, load_split
from tests.analysis.runs import pieces_of, records_of, subject_on, tiny


@pytest.fixture
def subject(encoder, data_dir, tmp_path):
    return subject_on(encoder, LocalSource(str(data_dir)), tmp_path, max_length=48)


def reviews(folder, flip=(), seed=0):
    """SST-2 in which one word tells the class; `flip`: splits of other texts, with drawn labels."""
    generator = np.random.default_rng(seed)
    (folder / "sst2").mkdir(parents=True)
    for split, n in (("train", 60), ("dev", 40), ("test", 30)):
        lines = []
        for i in range(n):
            label = int(generator.random() < 0.7)
            text = f"the {'dog' if label else 'cat'} {'sees' if i % 2 else 'likes'} a bird {i}"
            if split in flip:
                text, label = f"{text} near the old bank", int(generator.integers(2))
            lines.append(json.dumps({"sentence": text, "label": label, "idx": i}))
        (folder / "sst2" / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return LocalSource(str(folder))


def test_dev_and_test_choose_nothing(subject, tmp_path):
    records = []
    for name, flip in (("honest", ()), ("drawn", ("dev", "test"))):
        (tmp_path / name).mkdir()
        source = reviews(tmp_path / name / "data", flip)
        own = subject._replace(source=source, folder=tmp_path / name)
        records.append(records_of(LayerProbe(tasks=["sst2"]), own))
    for honest, drawn in zip(*records, strict=True):
        for key in ("penalty", "held_out_loss", "is_chosen", "isoscore_corrected", "n_rows"):
            assert honest[key] == pytest.approx(drawn[key], rel=1e-5)
        assert honest["dev"] > 0.95
        assert drawn["dev"] < 0.8


def test_baselines_and_intervals(subject, tmp_path):
    """The majority is that of train, also where dev has another."""
    source = reviews(tmp_path / "data")
    file = tmp_path / "data" / "sst2" / "dev.jsonl"
    lines = [line for line in file.read_text().splitlines() if not json.loads(line)["label"]]
    file.write_text("\n".join([*lines, *file.read_text().splitlines()[:3]]), encoding="utf-8")
    (r, *_) = records_of(LayerProbe(tasks=["sst2"]), subject._replace(source=source))
    splits = ("train", "dev", "test")
    rows = {s: [row["label"] for row in load_split(source, SST2_DATA, s)] for s in splits}
    assert sum(rows["train"]) > 30  # of 60: the class to answer with is 1
    assert np.mean(rows["dev"]) < 0.5
    for split in ("dev", "test"):
        assert r[f"majority_{split}"] == pytest.approx(np.mean(rows[split]))
        n = len(rows[split])
        assert r[f"n_{split}"] == n
        interval = binomtest(round(r[split] * n), n).proportion_ci(method="wilson")
        assert (r[f"{split}_low"], r[f"{split}_high"]) == pytest.approx(tuple(interval))
    assert (r["n_train"], r["n_held_out"], r["chance"]) == (60, 12, 0.5)


def test_a_graded_score_against_a_slow_reference(subject, tmp_path):
    examples = read_examples(subject, "stsb", None, None)
    rows = torch.from_numpy(encode_rows(subject, examples.tokens, examples.spans)[1])
    records = records_of(LayerProbe(tasks=["stsb"], penalties=[0.3]), subject)
    x = features(rows, examples.span_index["train"]).double()
    scaler = StandardScaler().fit(x)
    label = {s: examples.label[s] for s in ("train", "dev")}
    ridge = Ridge(alpha=0.3 * len(x)).fit(scaler.transform(x), label["train"])
    predicted = ridge.predict(scaler.transform(features(rows, examples.span_index["dev"]).double()))
    expected = spearmanr(predicted, label["dev"]).statistic
    assert records[1]["dev"] == pytest.approx(expected, abs=1e-6)


def test_rows_against_a_slow_pooling(subject):
    examples = read_examples(subject, "rte", 5, 5)
    tokens = examples.tokens
    rows = encode_rows(subject, tokens, examples.spans)
    for number, (ids, segments) in enumerate(zip(tokens.ids, tokens.segments, strict=True)):
        for layer, state in enumerate(hidden_states(subject, [ids], [segments])):
            assert np.allclose(rows[layer, number], state[0].mean(dim=0).numpy(), atol=1e-5)


def test_a_sentence_of_several_pairs_is_one_row_and_counts_once(subject):
    examples = read_examples(subject, "snli", None, None)
    premises = examples.span_index["train"][:, 0]
    assert len(premises.unique()) == 32  # each premise of the fixture stands three times
    records = records_of(LayerProbe(tasks=["snli"]), subject)
    own = examples.span_index["train"].unique()
    assert records[0]["n_rows"] == len(own) < 2 * len(premises)
    rows = torch.from_numpy(encode_rows(subject, examples.tokens, examples.spans)[1])
    assert records[1]["isoscore_corrected"] == pytest.approx(float(isoscore_corrected(rows[own])))
    assert records[1]["mean_cosine"] == pytest.approx(float(mean_cosine(rows[own])))
    assert records[1]["ln_partition"] == pytest.approx(float(partition(rows[own])), rel=1e-4)
    assert records[1]["ln_partition_null"] < 0
    repeated = rows[examples.span_index["train"].flatten()]
    assert records[1]["mean_cosine"] != pytest.approx(float(mean_cosine(repeated)), rel=1e-6)


def test_rows_that_are_equal_count_once_in_isotropy(subject, data_dir, tmp_path):
    """WiC has a sentence in several pairs."""
    file = data_dir / "wic" / "train.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    (tmp_path / "twice" / "wic").mkdir(parents=True)
    for split in ("dev", "train"):
        own = (file.parent / f"{split}.jsonl").read_text(encoding="utf-8")
        twice = "\n".join([*lines, *lines]) if split == "train" else own
        (tmp_path / "twice" / "wic" / f"{split}.jsonl").write_text(twice, encoding="utf-8")
    source = LocalSource(str(tmp_path / "twice"))
    examples = read_examples(subject._replace(source=source, max_length=200), "wic", None, None)
    own = distinct_rows(examples).tolist()
    tokens, spans = examples.tokens, examples.spans
    content = [
        (tuple(tokens.ids[s]), a, b)
        for s, a, b in zip(spans.sentence_N, spans.start_N, spans.stop_N, strict=True)
    ]
    train = [content[row] for row in examples.span_index["train"].unique().tolist()]
    assert len(own) == len({content[row] for row in own}) == len(set(train)) <= len(train) / 2


def test_the_target_words_of_wic_are_its_rows(subject):
    whole = subject._replace(max_length=200)
    examples = read_examples(whole, "wic", None, None)
    found = pieces_of(subject.encoder.tokenizer, examples.tokens, examples.spans)
    assert found == [["bank"]] * 2 * (96 + 32 + 32)
    assert examples.span_index["dev"].tolist() == [[2 * k, 2 * k + 1] for k in range(96, 128)]
    cut = read_examples(subject._replace(max_length=12), "wic", None, None)
    assert cut.n_left_out > 0
    assert sum(len(p) for p in cut.span_index.values()) == 160 - cut.n_left_out
    assert all(len(cut.span_index[s]) == len(cut.label[s]) for s in cut.span_index)


def test_budgets_are_drawn_by_the_seed(subject):
    drawn = [read_examples(subject._replace(seed=seed), "rte", 20, 10) for seed in (0, 0, 1)]
    for examples in drawn:
        assert {s: len(p) for s, p in examples.span_index.items()} == {"train": 20, "dev": 10}
    assert drawn[0].tokens.ids == drawn[1].tokens.ids != drawn[2].tokens.ids


def test_a_causal_encoder_is_probed(subject):
    own = subject._replace(encoder=tiny("gpt2"))
    records = records_of(LayerProbe(tasks=["rte"], penalties=[1.0], max_train=30), own)
    assert [r["layer"] for r in records] == [0, 1, 2]
