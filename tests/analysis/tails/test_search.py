"""Which dimensions are extreme, and which are outliers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import zscore

from isotrain.analysis.outliers import mean_scores, outlier_dimensions
from isotrain.analysis.tails.analysis import search_records, share_error


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_shares_against_a_loop():
    """Of a layer the commonest dimension; of an outlier all layers above the embeddings."""
    x_LND = draw(3, 60, 5)
    x_LND[:, :, 2] -= 2.0
    x_LND[:, :, 4] += 2.0
    sample = SimpleNamespace(sentence_N=torch.arange(60) // 4)
    found = SimpleNamespace(
        sample=sample, rows_LND=x_LND.numpy(), score_LD=draw(3, 5), threshold=1.0, dims=[4, 2]
    )
    records = search_records(found)
    for name, extreme in (("minimum", min), ("maximum", max)):
        at = [[row.index(extreme(row)) for row in x_ND.tolist()] for x_ND in x_LND]
        for layer in range(3):
            counts = [at[layer].count(i) for i in range(5)]
            assert records[layer][f"{name}_dimension"] == counts.index(max(counts))
            assert records[layer][f"{name}_share"] == pytest.approx(max(counts) / 60)
        for record in records[3:]:
            n = sum(of_layer.count(record["dimension"]) for of_layer in at[1:])
            assert record[f"{name}_share"] == pytest.approx(n / 120)
    assert [record["dimension"] for record in records[3:]] == [4, 2]


def test_scores_are_z_scores_of_scipy():
    mean = draw(3, 40) * 5 + 2
    np.testing.assert_allclose(mean_scores(mean), zscore(mean.double().numpy(), axis=1), rtol=1e-9)


@pytest.mark.parametrize("planted", [(0, 3), (17, 63), (40, 5)])
def test_planted_dimensions_are_found_wherever_they_are(planted):
    mean = draw(6, 64, seed=3) * 0.1
    mean[:, planted[0]] += 9.0
    mean[:, planted[1]] -= 6.0
    assert outlier_dimensions(mean_scores(mean), 3.0, 0.5) == list(planted)  # the farthest first


def test_the_error_of_a_share_against_resampled_sentences():
    generator = torch.Generator().manual_seed(0)
    sentence = torch.arange(200).repeat_interleave(5)
    chance = torch.rand(200, generator=generator)
    hit = (torch.rand(1000, generator=generator) < chance[sentence]).long()
    by_sentence = hit.reshape(200, 5)
    drawn = torch.randint(200, (2000, 200), generator=generator)
    spread = by_sentence[drawn].double().mean(dim=(1, 2)).std().item()
    assert share_error(hit, sentence) == pytest.approx(spread, rel=0.08)
