"""Token rows: no pads, no specials in samples, whole sentences, any block size, any model."""

import numpy as np
import pytest
import torch

from isotrain.analysis.encode import hidden_states
from isotrain.analysis.offline_isotropy import analysis as offline_cloud
from isotrain.analysis.offline_isotropy.analysis import (
    apply_fits,
    cosines,
    pooled,
    sample,
    sample_sentences,
    token_clouds,
)
from isotrain.encoders.on_disk import packaged_folder
from isotrain.model.pooling import mean_pool
from tests.analysis.runs import minilm, subject_on

SENTENCES = [
    "the dog sees the cat",
    "dog",
    "the old horse follows the small bird and the cat and the dog",
    "a cat likes a quiet bird",
    "red bird",
]


class Affine:
    def __init__(self):
        self.facts = {}

    def __call__(self, x_BD):
        return 2.0 * x_BD + 1.0


def subject_of(encoder, folder):
    return subject_on(encoder.eval(), None, folder, batch_size=3)


@pytest.mark.parametrize("specials", [True, False])
def test_pooling_is_the_masked_mean(encoder, tmp_path, monkeypatch, specials):
    monkeypatch.setattr(offline_cloud, "BLOCK", 4)  # sentences lie across blocks
    subject = subject_of(encoder, tmp_path)
    cloud = token_clouds(subject, SENTENCES, [2])[2]
    sample_M = sample(cloud.ordinary(), 1000, seed=0)
    found, _ = apply_fits(cloud, {"own_pooling": None, "mean": Affine()}, sample_M, {})
    found_UD = 2.0 * found["own_pooling"] + 1.0 if specials else found["mean"]
    for i, text in enumerate(SENTENCES):
        ids = encoder.tokenizer(text)["input_ids"]
        state_1TD = 2.0 * hidden_states(subject, [ids])[-1] + 1.0
        mask_1T = torch.ones(1, len(ids))
        if not specials:
            mask_1T[0, [0, -1]] = 0
        expected_D = mean_pool(state_1TD, mask_1T)[0]
        torch.testing.assert_close(found_UD[i], expected_D, atol=1e-5, rtol=0)


def test_a_sentence_without_tokens_has_cosine_zero(encoder, tmp_path):
    cloud = token_clouds(subject_of(encoder, tmp_path), ["", *SENTENCES], [2])[2]
    pooled_UD = pooled(cloud.ordinary())
    assert (pooled_UD[0] == 0).all()
    assert cosines(pooled_UD, np.array([0]), np.array([1]))[0] == 0.0


def test_a_sample_has_whole_sentences_and_no_special(encoder, tmp_path):
    cloud = token_clouds(subject_of(encoder, tmp_path), SENTENCES, [2])[2]
    n_U = np.bincount(cloud.sentence_N[~cloud.special_N])
    for most in (1, 8, 12, 1000):
        sample_M = sample(cloud.ordinary(), most, seed=0)
        chosen_U = sample_sentences(n_U, most, seed=0)
        assert len(sample_M) == n_U[chosen_U].sum()
        assert len(sample_M) <= most or len(chosen_U) == 1
        assert np.unique(cloud.ordinary().sentence_N[sample_M]).tolist() == chosen_U.tolist()
    assert len(sample(cloud.ordinary(), 1000, seed=0)) == (~cloud.special_N).sum()
    assert not cloud.ordinary().special_N.any()


def test_sentence_transformers_gives_the_same_vectors(tmp_path):
    from sentence_transformers import SentenceTransformer

    texts = [*SENTENCES, "A man is playing a guitar.", "Stocks fell 2.5% (again) on Tuesday!"]
    subject = subject_of(minilm(), tmp_path)
    cloud = token_clouds(subject, texts, [6])[6]
    ours_UD = pooled(cloud)
    theirs_UD = SentenceTransformer(str(packaged_folder()), device="cpu").encode(
        texts, batch_size=2, normalize_embeddings=True, show_progress_bar=False
    )
    unit_UD = (ours_UD / ours_UD.norm(dim=1, keepdim=True)).numpy()
    assert np.abs(unit_UD - theirs_UD).max() < 1e-5
