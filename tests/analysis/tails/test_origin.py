"""Norms and embedding tables of BERT-like and GPT-2-like encoders, found by their type."""

import pytest
import torch
from torch import nn

from isotrain.analysis.tails.analysis import norm_records, table_records
from tests.analysis.runs import tiny

PLACES = {
    "bert": [
        (0, 0.0, "LayerNorm"),
        (1, 0.5, "attention.output.LayerNorm"),
        (1, 1.0, "output.LayerNorm"),
        (2, 1.5, "attention.output.LayerNorm"),
        (2, 2.0, "output.LayerNorm"),
    ],
    "gpt2": [
        (1, 0.5, "ln_1"),
        (1, 1.0, "ln_2"),
        (2, 1.5, "ln_1"),
        (2, 2.0, "ln_2"),
        (2, 2.5, "ln_f"),
    ],
    "distilbert": [
        (0, 0.0, "LayerNorm"),
        (1, 0.5, "sa_layer_norm"),
        (1, 1.0, "output_layer_norm"),
        (2, 1.5, "sa_layer_norm"),
        (2, 2.0, "output_layer_norm"),
    ],
}


@pytest.mark.parametrize("kind", PLACES)
def test_every_norm_is_found_once_and_in_its_place(kind):
    records = norm_records(tiny(kind), [3])
    assert [(r["layer"], r["place"], r["norm"]) for r in records] == PLACES[kind]
    assert {r["gain"] for r in records} == {1.0}
    assert {r["gain_score"] for r in records} == {None}  # of a fresh model all gains are 1


@pytest.mark.parametrize("kind", PLACES)
def test_a_planted_gain_and_bias_are_reported_by_their_scores(kind):
    encoder = tiny(kind)
    norms = [m for m in encoder.modules() if isinstance(m, nn.LayerNorm)]
    with torch.no_grad():
        for norm in norms:
            norm.weight.normal_(1.0, 0.1)
            norm.bias.normal_(0.0, 0.1)
        norms[-1].weight[5] = 4.0
        norms[-1].bias[5] = -3.0
    found = [r for r in norm_records(encoder, [5, 2]) if r["dimension"] == 5]
    assert [r["gain_score"] > 10 for r in found] == [False] * 4 + [True]
    assert [r["bias_score"] < -10 for r in found] == [False] * 4 + [True]
    gain = norms[-1].weight.detach().double()
    others = torch.tensor([v for i, v in enumerate(gain.tolist()) if i not in (5, 2)]).double()
    expected = (gain[5] - others.mean()) / others.std()
    assert found[-1]["gain_score"] == pytest.approx(expected.item())


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("bert", ["word_embeddings", "position_embeddings", "token_type_embeddings"]),
        ("gpt2", ["wte", "wpe"]),
        ("distilbert", ["word_embeddings", "position_embeddings"]),
    ],
)
def test_tables_are_measured_by_column(kind, names):
    encoder = tiny(kind)
    tables = {
        n.rpartition(".")[2]: m for n, m in encoder.named_modules() if isinstance(m, nn.Embedding)
    }
    position = tables[names[1]]
    with torch.no_grad():
        position.weight[:, 7] = torch.tensor([1.0, -1.0]).repeat(len(position.weight) // 2)
    records = table_records(encoder, [7])
    assert [r["table"] for r in records] == names
    own = records[1]
    assert own["size"] == pytest.approx(1.0)  # the mean of |entry|: the signs do not cancel
    assert own["score"] > 50
    assert own["n_rows"] == len(position.weight)
    word = records[0]
    assert abs(word["score"]) < 4
    kept = tables[names[0]].weight.detach().double()
    if tables[names[0]].padding_idx is not None:  # its row is zero in every model
        kept = torch.cat(
            [kept[: tables[names[0]].padding_idx], kept[tables[names[0]].padding_idx + 1 :]]
        )
    assert word["size"] == pytest.approx(kept[:, 7].abs().mean().item())
    rest = [i for i in range(16) if i != 7]
    assert word["others"] == pytest.approx(kept[:, rest].abs().mean().item())
