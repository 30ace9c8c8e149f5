"""Attention of heads: against slow sums, closed forms, and its encoders."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.analysis.attention.analysis import UNIFORM, Attention, attentions, measures
from isotrain.analysis.encode import hidden_states
from isotrain.encoders.static import TableEncoder
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.runs import of, outcome_of, tiny


@given(st.integers(2, 7), st.integers(0, 1000))
def test_measures_against_slow_sums(n, seed):
    generator = np.random.default_rng(seed)
    share = generator.dirichlet(np.ones(n), size=(2, n))
    special = generator.integers(0, 2, n)
    special[generator.integers(n)] = 0
    found = measures(torch.from_numpy(share), torch.from_numpy(special))
    own = [i for i in range(n) if not special[i]]
    for head in range(2):
        sums = dict.fromkeys(found, 0.0)
        for i in own:
            for j, a in enumerate(share[head, i]):
                sums["entropy"] -= a * np.log(a)
                sums["distance"] += a * abs(i - j)
                sums["itself"] += a * (i == j)
                sums["previous"] += a * (j == i - 1)
                sums["next"] += a * (j == i + 1)
                sums["first"] += a * (j == 0)
                sums["special"] += a * special[j]
        for name, total in sums.items():
            assert float(found[name][head]) == pytest.approx(total / len(own), abs=1e-9), name


@pytest.mark.parametrize("kind", ["bert", "gpt2", "distilbert"])
def test_attention_is_that_of_the_model_and_leaves_it_as_it_was(kind, subject_of):
    encoder = tiny(kind)
    subject = subject_of(encoder)
    ids = encoder.tokenizer(["the old dog sees a bird", "a cat"])["input_ids"]
    before, how = hidden_states(subject, ids)[-1], encoder.model.config._attn_implementation
    found = attentions(subject, ids, None)
    assert len(found) == encoder.n_blocks
    for layer in found:
        for k, own in enumerate(ids):
            n = len(own)
            whole = layer[k, :, :n, :n].sum(dim=2)
            torch.testing.assert_close(whole, torch.ones_like(whole))
    assert encoder.model.config._attn_implementation == how
    assert torch.equal(before, hidden_states(subject, ids)[-1])


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_equal_keys_give_uniform_attention(kind, subject_of, data_dir):
    encoder = tiny(kind)
    with torch.no_grad():
        for block in encoder.blocks:
            if kind == "bert":
                block.attention.self.key.weight.zero_()
            else:
                block.attn.c_attn.weight.chunk(3, dim=1)[1].zero_()
    subject = subject_of(encoder, LocalSource(str(data_dir)))
    found = outcome_of(Attention(max_sentences=12), subject)
    (uniform,) = of(found, UNIFORM)
    heads = of(found, "head")
    assert [(r["layer"], r["head"]) for r in heads] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for record in heads:
        assert record["n_sentences"] == 12
        for name in ("entropy", "distance", "itself", "previous", "next", "first", "special"):
            assert record[name] == pytest.approx(uniform[name], abs=1e-5)
            assert record[f"{name}_error"] == pytest.approx(uniform[f"{name}_error"], abs=1e-5)


def test_a_corpus_without_dev_is_an_error(subject_of, tmp_path):
    folder = tmp_path / "sts13"
    folder.mkdir()
    row = {"sentence1": "a dog", "sentence2": "the dog", "score": 1.0}
    (folder / "test.jsonl").write_text(json.dumps(row) + "\n")
    subject = subject_of(tiny(), LocalSource(str(tmp_path)))
    with pytest.raises(ValueError, match=r"analysis\.corpus=sts13 has no dev split"):
        outcome_of(Attention(corpus="sts13", max_sentences=2), subject)


def test_word_vectors_have_no_attention(subject_of, data_dir):
    vectors = TableEncoder(torch.eye(9), tiny().tokenizer, "vectors")
    subject = subject_of(vectors, LocalSource(str(data_dir)))
    with pytest.raises(ValueError, match="analysis=attention needs a transformer, got vectors"):
        outcome_of(Attention(max_sentences=2), subject)
