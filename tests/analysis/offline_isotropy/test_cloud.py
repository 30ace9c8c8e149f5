"""Token rows: no pads, no specials in samples, whole sentences, any block size, any model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isotrain.analysis.encode import hidden_states
from isotrain.analysis.offline_isotropy import clouds as offline_cloud
from isotrain.analysis.offline_isotropy.clouds import drawn, pooled, sample, token_clouds
from isotrain.analysis.offline_isotropy.scores import cosines
from isotrain.encoders.on_disk import packaged_folder
from isotrain.model.pooling import mean_pool
from tests.analysis.runs import subject_on, tiny

SENTENCES = [
    "the dog sees the cat",
    "dog",
    "the old horse follows the small bird and the cat and the dog",
    "a cat likes a quiet bird",
    "red bird",
]


def subject_of(encoder, folder):
    return subject_on(encoder.eval(), None, folder, batch_size=3)


@pytest.fixture(scope="module")
def encoder():
    return tiny()


def test_rows_are_those_of_each_sentence_alone(encoder, tmp_path):
    subject = subject_of(encoder, tmp_path)
    cloud = token_clouds(subject, "rows", SENTENCES, [2])[2]
    start = 0
    for i, text in enumerate(SENTENCES):
        ids = encoder.tokenizer(text)["input_ids"]
        alone_TD = hidden_states(subject, [ids])[-1][0]
        own_ND = torch.from_numpy(np.array(cloud.rows_ND[start : start + len(ids)]))
        torch.testing.assert_close(own_ND, alone_TD, atol=1e-5, rtol=0)
        assert cloud.token_N[start : start + len(ids)].tolist() == ids
        assert cloud.special_N[start : start + len(ids)].tolist() == [
            token in encoder.tokenizer.all_special_ids for token in ids
        ]
        assert (cloud.sentence_N[start : start + len(ids)] == i).all()
        start += len(ids)
    assert start == len(cloud.rows_ND)  # no pad is a row


def test_each_layer_has_its_own_hidden_states(encoder, tmp_path):
    subject = subject_of(encoder, tmp_path)
    ids = encoder.tokenizer(SENTENCES[1])["input_ids"]
    clouds = token_clouds(subject, "rows", SENTENCES[1:2], [2, 0, 1])
    for layer, state_1TD in enumerate(hidden_states(subject, [ids])):
        cloud = clouds[layer]
        found_ND = torch.from_numpy(np.array(cloud.rows_ND))
        torch.testing.assert_close(found_ND, state_1TD[0], atol=1e-6, rtol=0)
        alone = token_clouds(subject, f"layer_{layer}", SENTENCES[1:2], [layer])[layer]
        np.testing.assert_array_equal(alone.rows_ND, cloud.rows_ND)


@pytest.mark.parametrize("specials", [True, False])
def test_pooling_is_the_masked_mean(encoder, tmp_path, monkeypatch, specials):
    monkeypatch.setattr(offline_cloud, "BLOCK", 4)  # sentences lie across blocks
    subject = subject_of(encoder, tmp_path)
    cloud = token_clouds(subject, "rows", SENTENCES, [2])[2]
    found_UD = pooled(cloud, lambda x: 2.0 * x + 1.0, specials)
    for i, text in enumerate(SENTENCES):
        ids = encoder.tokenizer(text)["input_ids"]
        state_1TD = 2.0 * hidden_states(subject, [ids])[-1] + 1.0
        mask_1T = torch.ones(1, len(ids))
        if not specials:
            mask_1T[0, [0, -1]] = 0
        expected_D = mean_pool(state_1TD, mask_1T)[0]
        torch.testing.assert_close(found_UD[i], expected_D, atol=1e-5, rtol=0)


def test_a_sentence_without_tokens_has_cosine_zero(encoder, tmp_path):
    cloud = token_clouds(subject_of(encoder, tmp_path), "rows", ["", *SENTENCES], [2])[2]
    pooled_UD = pooled(cloud, None)
    assert (pooled_UD[0] == 0).all()
    assert cosines(pooled_UD, np.array([0]), np.array([1]))[0] == 0.0


def test_a_sample_has_whole_sentences_and_no_special(encoder, tmp_path):
    cloud = token_clouds(subject_of(encoder, tmp_path), "rows", SENTENCES, [2])[2]
    n_U = np.bincount(cloud.sentence_N[~cloud.special_N])
    for most in (1, 8, 12, 1000):
        rows = sample(cloud, most, seed=0)
        chosen_U = drawn(n_U, most, seed=0)
        assert len(rows.x_MD) == n_U[chosen_U].sum()
        assert len(rows.x_MD) <= most or len(chosen_U) == 1
        assert rows.n_sentences == len(chosen_U)
        assert not np.isin(rows.token_M, encoder.tokenizer.all_special_ids).any()
    assert len(sample(cloud, 1000, seed=0).x_MD) == (~cloud.special_N).sum()


def test_a_sample_is_drawn_from_the_seed(encoder, tmp_path):
    cloud = token_clouds(subject_of(encoder, tmp_path), "rows", SENTENCES * 5, [2])[2]
    drawn_twice = [sample(cloud, 30, seed) for seed in (1, 1, 2)]
    assert torch.equal(drawn_twice[0].x_MD, drawn_twice[1].x_MD)
    assert not np.array_equal(drawn_twice[0].token_M, drawn_twice[2].token_M)


def test_rows_of_chosen_sentences_alone(encoder, tmp_path):
    cloud = token_clouds(subject_of(encoder, tmp_path), "rows", SENTENCES, [2])[2]
    among = sample(cloud, 1000, seed=0, among_U=np.array([1, 4]))
    ids = encoder.tokenizer([SENTENCES[1], SENTENCES[4]], add_special_tokens=False)["input_ids"]
    assert among.token_M.tolist() == [token for own in ids for token in own]


def test_only_the_rows_that_are_asked_for_are_encoded(encoder, tmp_path):
    subject = subject_of(encoder, tmp_path)
    whole = sample(token_clouds(subject, "whole", SENTENCES, [2])[2], 12, subject.seed)
    part = token_clouds(subject, "part", SENTENCES, [2], most=12)[2]
    assert set(part.sentence_N) < set(range(len(SENTENCES)))
    own = sample(part, 12, subject.seed)
    assert own.token_M.tolist() == whole.token_M.tolist()
    torch.testing.assert_close(own.x_MD, whole.x_MD, atol=1e-5, rtol=0)


def test_a_decoder_without_special_tokens(tmp_path):
    from tokenizers import pre_tokenizers
    from transformers import GPT2Config, GPT2Model, GPT2Tokenizer

    from isotrain.encoders.transformer import TransformerEncoder

    pieces = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = GPT2Tokenizer(vocab={p: i for i, p in enumerate(pieces)}, merges=[])
    torch.manual_seed(0)
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 80}
    model = GPT2Model(GPT2Config(vocab_size=len(pieces), bos_token_id=0, eos_token_id=0, **size))
    subject = subject_of(TransformerEncoder(model, tokenizer, "tiny"), tmp_path)
    cloud = token_clouds(subject, "rows", SENTENCES[:3], [2])[2]
    assert not cloud.special_N.any()
    assert len(cloud.rows_ND) == sum(map(len, SENTENCES[:3]))  # a byte a token
    with torch.inference_mode():
        alone = model(torch.tensor([tokenizer(SENTENCES[0])["input_ids"]])).last_hidden_state
    expected_D = alone[0].mean(dim=0)  # the norm behind the last block is in it
    torch.testing.assert_close(pooled(cloud, None)[0], expected_D, atol=1e-5, rtol=0)


def test_sentence_transformers_gives_the_same_vectors(tmp_path):
    folder = packaged_folder()
    if folder is None:
        pytest.skip("isotrain[demo] is not installed")
    from sentence_transformers import SentenceTransformer

    from isotrain.encoders.huggingface import load_encoder

    texts = [*SENTENCES, "A man is playing a guitar.", "Stocks fell 2.5% (again) on Tuesday!"]
    subject = subject_of(load_encoder(str(folder)), tmp_path)
    cloud = token_clouds(subject, "rows", texts, [6])[6]
    ours_UD = pooled(cloud, None, specials=True)
    theirs_UD = SentenceTransformer(str(folder), device="cpu").encode(
        texts, batch_size=2, normalize_embeddings=True, show_progress_bar=False
    )
    unit_UD = (ours_UD / ours_UD.norm(dim=1, keepdim=True)).numpy()
    assert np.abs(unit_UD - theirs_UD).max() < 1e-5
