"""Texts and rows of the clusters analysis: which tokens are rows, and which never are."""

import numpy as np
import pytest
import torch

from isotrain.analysis.clusters.analysis import (
    distinct_rows,
    draw_sample,
)
from isotrain.geometry.groups import hashed_order
from tests.analysis.clusters.cluster_subjects import (
    BERT,
    GPT2,
    LINES,
    subject_of,
    texts_of,
)


def test_chunks_are_the_plain_stream_without_its_remainder():
    tokenizer = BERT().tokenizer
    lines = [line.strip().replace("<unk>", "[UNK]") for line in LINES]
    stream = [t for line in lines for t in tokenizer(line, add_special_tokens=False)["input_ids"]]
    texts = texts_of(BERT())
    chunks = [stream[at : at + 8] for at in range(0, len(stream) // 8 * 8, 8)]
    assert [[*ids] for ids in texts.ids] == [chunks[i] for i in hashed_order(len(chunks), 0)]
    assert len(stream) % 8 > 0
    assert not {tokenizer.cls_token_id, tokenizer.sep_token_id} & {*np.ravel(texts.ids).tolist()}
    assert texts.count_V.tolist() == np.bincount(stream, minlength=len(tokenizer)).tolist()


@pytest.mark.parametrize("build", [BERT, GPT2])
def test_rows_are_the_states_of_the_drawn_tokens(build, tmp_path):
    """Against one chunk at a time through transformers, which sees neither CLS nor SEP."""
    encoder = build()
    texts = texts_of(encoder)
    found = draw_sample(subject_of(encoder, tmp_path), texts, 10_000)
    model = type(encoder.model)(encoder.model.config)
    model.load_state_dict(encoder.model.state_dict(), strict=False)
    model.eval()
    for layer, rows_ND in enumerate(found.rows_LND):
        expected = []
        for ids in texts.ids:
            with torch.no_grad():
                output = model(input_ids=torch.tensor([[*ids]]), output_hidden_states=True)
            expected += zip([*ids], output.hidden_states[layer][0], strict=True)
        expected = [(t, x) for t, x in expected if t != encoder.tokenizer.unk_token_id]
        rows = torch.from_numpy(rows_ND)
        assert len(rows) == len(expected)
        for token, state in expected:
            own = rows[found.type_N == token]
            assert (own - state).norm(dim=1).min() < 1e-5


def test_no_unknown_token_is_a_row(tmp_path):
    encoder = BERT()
    texts = texts_of(encoder)
    found = draw_sample(subject_of(encoder, tmp_path), texts, 999)
    unknown = encoder.tokenizer.unk_token_id
    assert unknown in texts.ids
    assert sorted(found.type_N.tolist()) == sorted(texts.ids[texts.ids != unknown].tolist())


def test_draws_follow_the_seed_and_the_limits(tmp_path):
    encoder = BERT()

    def texts(seed, max_tokens=200):
        return texts_of(encoder, lines=LINES * 20, max_tokens=max_tokens, seed=seed)

    def drawn(seed):
        return draw_sample(subject_of(encoder, tmp_path / f"{seed}", seed=seed), texts(seed), 50)

    assert drawn(0).type_N.tolist() == drawn(0).type_N.tolist() != drawn(1).type_N.tolist()
    assert len(drawn(0).type_N) == 50
    assert texts(0).ids.shape == (25, 8)
    assert len(texts(0, 1).ids) == 1
    assert texts(0, 16).count_V.tolist() == texts(1).count_V.tolist()  # of all of the corpus


def test_equal_rows_of_a_type_count_once():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 8, generator=generator)
    types = torch.arange(40) % 5
    again = torch.tensor([3, 11, 3, 27])
    noise = 1e-6 * torch.randn(4, 8, generator=generator)  # rounding of another batch
    other_type = torch.cat([types, types[again], torch.tensor([99])])
    cloud = torch.cat([x, x[again] + noise, x[3:4]])
    kept = distinct_rows(cloud, other_type)
    assert kept.tolist() == [*range(40), 44]  # the equal row of another type stays
    turned = torch.arange(len(cloud)).flip(0)
    assert len(distinct_rows(cloud[turned], other_type[turned])) == len(kept)
    apart = [
        (i, j)
        for i in range(len(cloud))
        for j in range(i)
        if other_type[i] == other_type[j] and (cloud[i] - cloud[j]).norm() < 1e-4 * cloud[i].norm()
    ]
    assert len(cloud) - len(kept) == len({i for i, _ in apart})
