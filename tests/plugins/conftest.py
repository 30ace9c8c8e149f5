"""A tiny BERT, its tokenizer, texts, and a SentenceTransformer around it; no hub."""

import pytest
import torch
from transformers import BertConfig, BertModel

TEXTS = [
    "the dog sees the cat",
    "a horse follows the old bird near the bank",
    "the cat likes the horse",
    "birds sing",
    "the quiet dog sees a small red horse at the bank",
    "the bird follows the dog",
]


@pytest.fixture
def texts():
    return list(TEXTS)


@pytest.fixture
def bert(tokenizer):
    """Two blocks of width 16, with dropout, from a fixed seed."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return BertModel(config, add_pooling_layer=False)


@pytest.fixture
def sentence_model(bert, tokenizer, tmp_path):
    """Mean pooling over that BERT, without dropout."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    bert.config.hidden_dropout_prob = bert.config.attention_probs_dropout_prob = 0.0
    bert.save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    transformer = Transformer(str(tmp_path / "bert"))
    return SentenceTransformer(modules=[transformer, Pooling(16, "mean")], device="cpu")
