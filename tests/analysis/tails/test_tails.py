"""The analysis of tails as a whole, on tiny encoders with outliers planted in their weights."""

import numpy as np
import pytest
import torch
from torch import nn

from isotrain.analysis import outliers
from isotrain.analysis.outliers import draw_tokens, find_tails, treatments
from isotrain.analysis.tails.analysis import Tails, search_records
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.runs import of, outcome_of, subject_on, tiny

PLANTED = 11
SMALL = {"corpus": "snli", "max_rows": 400, "max_pairs": 20, "min_count": 2}


def bert(planted=PLANTED):
    """A tiny BERT every norm of which puts one dimension far out."""
    return with_outlier(tiny(width=32), planted)


def gpt2(planted=PLANTED):
    """A tiny GPT-2 whose position table does."""
    encoder = tiny("gpt2", width=32)
    with torch.no_grad():
        encoder.model.wpe.weight[:, planted] = -40.0
        encoder.model.ln_f.bias.normal_(0.0, 0.01)
    return encoder


def with_outlier(encoder, planted):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for norm in (m for m in encoder.modules() if isinstance(m, nn.LayerNorm)):
            norm.bias.copy_(torch.randn(norm.bias.shape, generator=generator) * 0.1)
            norm.weight.copy_(1.0 + torch.randn(norm.bias.shape, generator=generator) * 0.1)
            norm.bias[planted] = -6.0
            norm.weight[planted] = 2.0
    return encoder


def subject_of(encoder, data_dir, folder):
    return subject_on(encoder, LocalSource(str(data_dir)), folder, max_length=48)


def measured(analysis, encoder, data_dir, folder, weights="as given"):
    return outcome_of(analysis, subject_of(encoder, data_dir, folder), (weights,))


@pytest.fixture(scope="module")
def outcome(data_dir, tmp_path_factory):
    return measured(Tails(**SMALL), bert(), data_dir, tmp_path_factory.mktemp("rows"))


def test_the_planted_dimension_is_found_cut_and_traced(outcome):
    (outlier,) = of(outcome, "outlier")
    assert outlier["dimension"] == PLANTED
    assert outlier["mean_score"] < -5
    assert outlier["minimum_share"] == 1.0
    for layer in range(3):
        none, cut = (of(outcome, "treated", layer=layer, treatment=t)[0] for t in ("none", "cut"))
        assert 1 - cut["anisotropy"] > 2 * (1 - none["anisotropy"])  # near 1 in the last layer
    norms = of(outcome, "norm")
    assert len(norms) == 5
    assert all(r["dimension"] == PLANTED and r["gain_score"] > 5 for r in norms)
    assert all(r["bias_score"] < -20 for r in norms)


@pytest.mark.parametrize("planted", [0, 31])
def test_dimensions_are_detected_not_known(data_dir, tmp_path, planted):
    subject = subject_of(bert(planted), data_dir, tmp_path / "rows")
    sentences = ["the dog sees the old cat near the bank", "a red bird likes the horse"] * 2
    found = find_tails(subject, sentences, 200, 3.0, 0.5)
    assert found.dims == [planted]


def test_a_decoder_too_and_its_position_table(data_dir, tmp_path):
    found = measured(Tails(**SMALL), gpt2(), data_dir, tmp_path / "rows")
    assert [r["dimension"] for r in of(found, "outlier")] == [PLANTED]
    (table,) = of(found, "table", table="wpe")
    assert table["size"] == pytest.approx(40.0)
    assert table["score"] > 100
    assert abs(of(found, "table", table="wte")[0]["score"]) < 4
    assert {r["norm"] for r in of(found, "norm")} == {"ln_1", "ln_2", "ln_f"}
    assert all(Tails(**SMALL).tables(found))


def test_special_tokens_are_not_among_the_rows(data_dir, tmp_path):
    subject = subject_of(bert(), data_dir, tmp_path)
    sample = draw_tokens(subject, ["the dog sees the cat.", "a zyx [UNK] near the bank"], 100)
    tokenizer, ids = subject.encoder.tokenizer, sample.tokens.ids
    at_N = zip(sample.spans.sentence_N, sample.spans.start_N, strict=True)
    plain = [t for own in ids for t in own if t not in tokenizer.all_special_ids]
    assert [ids[i][t] for i, t in at_N] == plain
    assert tokenizer.convert_tokens_to_ids(".") in plain


def test_shares_over_all_layers_and_their_error_against_resampled_sentences(data_dir, tmp_path):
    encoder = tiny()
    subject = subject_of(encoder, data_dir, tmp_path)
    nouns = ("dog", "cat", "bird", "horse", "bank")
    sentences = [f"the {a} {b} sees {c} cat" for a in ("old", "red") for b in nouns for c in nouns]
    found = find_tails(subject, sentences, 1000, 0.5, 0.1)
    at = [torch.from_numpy(found.rows_LND[layer]).argmin(dim=1) for layer in (1, 2)]
    sentence_N, n = found.sample.sentence_N, len(found.sample.spans)
    tails = [r for r in search_records(found) if r["kind"] == "outlier" and r["minimum_share"]]
    assert tails
    generator = torch.Generator().manual_seed(0)
    n_rows_G = torch.bincount(sentence_N).double()
    drawn = torch.randint(len(n_rows_G), (4000, len(n_rows_G)), generator=generator)
    for tail in tails:
        i = tail["dimension"]
        hit_N = sum((own == i).double() for own in at) / 2
        assert tail["minimum_share"] == pytest.approx(hit_N.sum().item() / n)
        hit_G = torch.zeros_like(n_rows_G).index_add(0, sentence_N, hit_N)
        share = hit_G[drawn].sum(dim=1) / n_rows_G[drawn].sum(dim=1)
        assert tail["minimum_share_error"] == pytest.approx(share.std().item(), rel=0.1)


def test_no_sentence_is_both_fitted_and_measured(data_dir, tmp_path, monkeypatch):
    from isotrain.analysis.tails import analysis as tails

    seen = []

    def spy(subject, sentences, max_rows):
        seen.append(list(sentences))
        return draw_tokens(subject, sentences, max_rows)

    for module in (tails, outliers):
        monkeypatch.setattr(module, "draw_tokens", spy)
    analysis = Tails(**SMALL)
    shared = "The dog sees the cat."
    read = analysis._sentences
    monkeypatch.setattr(
        analysis, "_sentences", lambda subject, split: [shared, *read(subject, split)]
    )
    layers = next(iter(analysis.parts(subject_of(bert(), data_dir, tmp_path / "rows"))))
    layers.measure()
    fitted, measured_ones = seen
    assert shared in fitted
    assert shared not in measured_ones
    assert len(measured_ones) > 3


def test_whitening_is_fitted_on_other_rows_than_it_is_measured_on(data_dir, tmp_path, monkeypatch):
    from isotrain.analysis.tails import analysis as tails

    fitted, measured_rows = [], []

    def spy(fit, dims, epsilon):
        fitted.append(fit.double())
        maps = treatments(fit, dims, epsilon)
        return {**maps, "none": lambda x: measured_rows.append(x.double()) or x.double()}

    monkeypatch.setattr(tails, "treatments", spy)
    analysis = Tails(**SMALL)
    subject = subject_of(bert(), data_dir, tmp_path / "rows")
    next(iter(analysis.parts(subject))).measure()
    search = analysis._search(subject)
    for layer in range(3):
        assert torch.equal(fitted[layer], torch.from_numpy(search.rows_LND[layer]).double())
        assert not torch.equal(fitted[layer], measured_rows[layer])


def test_the_fall_by_cutting_is_the_mean_over_layers_above_the_embeddings(outcome):
    (cut,) = of(outcome, "cut")
    falls = []
    for layer in (1, 2):
        none, own = (of(outcome, "treated", layer=layer, treatment=t)[0] for t in ("none", "cut"))
        falls.append(none["anisotropy"] - own["anisotropy"])
    assert cut["anisotropy_fall"] == pytest.approx(np.mean(falls))
    assert cut["n_layers"] == 2
    assert 0 < cut["anisotropy_fall_error"] < 0.2 * cut["anisotropy_fall"]
