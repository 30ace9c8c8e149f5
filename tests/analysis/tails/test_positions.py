"""Outlier dimensions by position, and encoders whose positions are zeroed or shuffled."""

import pytest
import torch

from isotrain.analysis.encode import encode_rows
from isotrain.analysis.outliers import find_tails, mean_scores
from isotrain.analysis.tails.positions import (
    changed_positions,
    position_records,
    position_tables,
)
from isotrain.tasks.data.demo_generator import DemoSource
from tests.analysis.runs import subject_on, tiny

PLANTED = 7
SENTENCES = [
    f"the {a} {b} sees the {c} cat near the bank"
    for a in ("old", "red", "big")
    for b in ("dog", "cat", "bird", "horse")
    for c in ("old", "red", "big")
]


def from_positions(at=slice(None)):
    """A tiny GPT-2 whose outlier stands in the embeddings of some positions alone."""
    encoder = tiny("gpt2", width=32)
    with torch.no_grad():
        encoder.model.wpe.weight[at, PLANTED] = -40.0
        encoder.model.ln_f.bias.normal_(0.0, 0.01)
    return encoder


def from_words():
    """A tiny GPT-2 every word of which has the outlier."""
    encoder = tiny("gpt2", width=32)
    with torch.no_grad():
        encoder.model.wte.weight[:, PLANTED] = -40.0
    return encoder


def records_of(encoder, folder):
    subject = subject_on(encoder, DemoSource(), folder)
    return position_records(subject, find_tails(subject, SENTENCES, 1000, 3.0, 0.5))


def scores(records, **where):
    own = [r for r in records if all(r.get(k) == v for k, v in where.items())]
    return [r["outlier_score"] for r in own]


def test_outliers_of_positions_are_gone_without_them_and_those_of_words_are_not(tmp_path):
    of_positions = records_of(from_positions(), tmp_path / "positions")
    of_words = records_of(from_words(), tmp_path / "words")
    for records, stays in ((of_positions, False), (of_words, True)):
        given, zeroed = (scores(records, positions=how) for how in ("as they are", "zeroed"))
        assert len(given) == len(zeroed) == 3
        assert min(given) > 5
        assert all((z > 5) == stays for z in zeroed)
    given, zeroed = (
        [r["anisotropy"] for r in of_positions if r.get("positions") == how]
        for how in ("as they are", "zeroed")
    )
    assert all(z < g - 0.3 for g, z in zip(given, zeroed, strict=True))


def test_outliers_of_all_positions_stay_where_they_are_shuffled(tmp_path):
    records = records_of(from_positions(), tmp_path)
    assert min(scores(records, positions="shuffled")) > 5
    assert all(r["largest_score"] >= r["outlier_score"] for r in records)


def test_shuffled_records_are_of_the_encoder_so_changed(tmp_path):
    encoder = from_positions(at=slice(1, 6))
    subject = subject_on(encoder, DemoSource(), tmp_path)
    tails = find_tails(subject, SENTENCES, 1000, 3.0, 0.5)
    own = [r for r in position_records(subject, tails) if r.get("positions") == "shuffled"]
    longest = max(map(len, tails.sample.tokens.ids))
    with changed_positions(position_tables(encoder), "shuffled", longest, subject.seed):
        rows_LND = encode_rows(subject, tails.sample.tokens, tails.sample.spans)
    for record, rows_ND, given_ND in zip(own, rows_LND, tails.rows_LND, strict=True):
        score_D = mean_scores(torch.from_numpy(rows_ND).double().mean(dim=0)[None])[0].abs()
        assert record["largest_score"] == pytest.approx(score_D.max().item(), rel=1e-4)
        assert not (rows_ND == given_ND).all()


def test_shuffled_positions_move_the_outlier_of_one_position(tmp_path):
    records = records_of(from_positions(at=1), tmp_path)
    profile = [r for r in records if r["kind"] == "profile" and r["layer"] == 0]
    assert len(profile) > 5
    assert all(r["n_rows"] == len(SENTENCES) for r in profile)
    assert max(profile, key=lambda r: r["outlier_score"])["position"] == 1
    encoder = from_positions(at=1)
    (table,) = position_tables(encoder)
    moved = set()
    for seed in range(3):
        with changed_positions([table], "shuffled", 9, seed):
            (at,) = (table.weight[:, PLANTED] == -40.0).nonzero().flatten().tolist()
        moved.add(at)
    assert moved != {1}
    assert max(moved) < 9


@pytest.mark.parametrize("how", ["zeroed", "shuffled"])
@pytest.mark.parametrize("kind", ["bert", "gpt2", "distilbert"])
def test_weights_are_given_back_even_after_an_error(kind, how):
    encoder = tiny(kind)
    (table,) = position_tables(encoder)
    assert table.num_embeddings == encoder.model.config.max_position_embeddings
    given = table.weight.detach().clone()

    def within():
        with changed_positions([table], how, 8, seed=1):
            assert not torch.equal(table.weight, given)
            if how == "shuffled":
                assert torch.equal(table.weight[8:], given[8:])
                assert torch.equal(table.weight.sort(dim=0).values, given.sort(dim=0).values)
            raise KeyError("within")

    with pytest.raises(KeyError, match="within"):
        within()
    assert torch.equal(table.weight, given)


def test_positions_behind_the_pad_row_are_shuffled_alone():
    table = torch.nn.Embedding(10, 4, padding_idx=1)
    given = table.weight.detach().clone()
    with changed_positions([table], "shuffled", 5, seed=0):
        same = (table.weight == given).all(dim=1).tolist()
        assert same[:2] == [True, True]
        assert same[7:] == [True, True, True]
        assert not all(same[2:7])


def test_an_encoder_without_positions_has_the_profile_alone(tmp_path):
    encoder = from_words()
    encoder.model.wpe.weight.data.zero_()
    subject = subject_on(encoder, DemoSource(), tmp_path)
    tails = find_tails(subject, SENTENCES, 1000, 3.0, 0.5)
    encoder.model.wpe = torch.nn.Module()
    assert position_tables(encoder) == []
    records = position_records(subject, tails)
    assert {r.get("positions") for r in records} == {"as they are", None}
    assert {r["kind"] for r in records} == {"positions", "profile"}
