"""The last block for the tokens that are read, against the whole block."""

from dataclasses import replace

import pytest
import torch

from isotrain.encoders.attention import use_attention
from isotrain.encoders.last_block import is_bert_like
from isotrain.encoders.tiny import build_tiny
from isotrain.model.pooling import ClsPooling, LastPooling, SpanPooling, tokens_read
from isotrain.types import Batch

LENGTHS = (9, 6, 4, 8)


def a_batch():
    mask = torch.tensor([[1] * n + [0] * (9 - n) for n in LENGTHS])
    spans = torch.tensor([[[1, 3], [2, 6]], [[0, 1], [5, 6]], [[1, 2], [1, 2]], [[3, 8], [0, 2]]])
    return Batch(
        torch.arange(5, 41).reshape(4, 9),
        mask,
        torch.zeros(4, 9, dtype=torch.long),
        1 - mask,
        torch.zeros(4),
        torch.arange(4),
        spans,
    )


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("pooling", [ClsPooling(), LastPooling(), SpanPooling()])
def test_pooled_embeddings_and_gradients_are_those_of_the_whole_block(pooling, dropout, packs):
    torch.manual_seed(0)
    encoder = build_tiny(width=16, n_blocks=3, n_heads=2, dropout=dropout)
    encoder.train(dropout == 0.0)  # dropout: in evaluation, so that both see the same
    use_attention(encoder.model)
    batch = a_batch()
    read_AT = tokens_read(pooling.reads, batch)
    found = []
    for read in (None, read_AT):
        encoder.packs_tokens = packs and read is not None
        encoder.zero_grad()
        states = encoder(replace(batch, read_mask=read), {})
        pooled = pooling(states.last, batch)
        pooled.pow(3).sum().backward()
        gradients = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
        found.append((pooled.detach(), gradients))
    (whole, gradients), (own, own_gradients) = found
    torch.testing.assert_close(own, whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own_gradients, gradients, rtol=1e-4, atol=1e-5)
    assert not states.last[~read_AT].any()
    mask_AT1 = batch.attention_mask[..., None]  # nobody reads pads
    encoder.packs_tokens = False
    whole = encoder(batch, {}).hidden_states
    for state, expected in zip(states.hidden_states[:-1], whole[:-1], strict=True):
        torch.testing.assert_close(state * mask_AT1, expected * mask_AT1)


def test_tokens_that_a_pooling_reads():
    batch = a_batch()
    assert tokens_read("first", batch).nonzero().tolist() == [[i, 0] for i in range(4)]
    last = [[i, n - 1] for i, n in enumerate(LENGTHS)]
    assert tokens_read("last", batch).nonzero().tolist() == last
    by_sequence = [sorted({t for s, e in spans for t in range(s, e)}) for spans in batch.spans]
    found = [row.nonzero().flatten().tolist() for row in tokens_read("spans", batch)]
    assert found == by_sequence
    assert tokens_read("all", batch) is None


def test_a_block_that_is_not_like_berts_is_told():
    assert is_bert_like(build_tiny(width=8, n_blocks=1, n_heads=1).blocks[0])
    assert not is_bert_like(torch.nn.TransformerEncoderLayer(8, 1))
