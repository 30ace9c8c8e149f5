"""Tiny encoders, texts and measured outcomes for the tests of the clusters analysis."""

from __future__ import annotations

from itertools import permutations

import torch
from transformers import (
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    OpenAIGPTConfig,
    OpenAIGPTModel,
)

from isotrain.analysis.clusters.rows import read_texts
from isotrain.analysis.types import Subject
from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder

LINES = [
    " The old dog sees the cat . ",
    " = The dog = ",
    " A dog , a cat and the <unk> dog . ",
    " The cat likes the red bird near the old bank . ",
    " The dog follows a small quiet horse . ",
]
MANY = LINES + [
    f" The {adjective} {first} {verb} the {second} . "
    for adjective in ("old", "small", "red")
    for first, second in permutations(("dog", "cat", "horse", "bird"), 2)
    for verb in ("sees", "likes")
]


class Lines:
    """A source of running text: the same lines for every data set and split."""

    def __init__(self, lines):
        self.lines = lines

    def missing(self, data_set):
        return None

    def revision_of(self, data_set):
        return "lines"

    def read(self, data_set, split):
        return [{"text": line} for line in self.lines]


def tiny_bert():
    torch.manual_seed(0)
    return build_tiny(16, 2, 2).eval()


def tiny_gpt2():
    torch.manual_seed(0)
    tokenizer = build_tiny(8, 1, 1).tokenizer
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=16, n_layer=3, n_head=2, n_positions=64)
    return TransformerEncoder(GPT2Model(config), tokenizer, "tiny gpt2").eval()


def tiny_gpt():
    torch.manual_seed(0)
    tokenizer = build_tiny(8, 1, 1).tokenizer
    config = OpenAIGPTConfig(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=64
    )
    return TransformerEncoder(OpenAIGPTModel(config), tokenizer, "tiny gpt").eval()


def tiny_distilbert():
    torch.manual_seed(0)
    tokenizer = build_tiny(8, 1, 1).tokenizer
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, n_layers=1, n_heads=2, hidden_dim=32
    )
    return TransformerEncoder(DistilBertModel(config), tokenizer, "tiny distilbert").eval()


def subject_of(encoder, folder, source=None, seed=0, batch_size=4):
    source = source or Lines(MANY)
    folder.mkdir(parents=True, exist_ok=True)
    return Subject(encoder, source, seed, batch_size, 32, folder, lambda text: None)


def texts_of(encoder, form="chunks", chunk=8, lines=LINES, max_tokens=200_000, seed=0):
    subject = Subject(encoder, Lines(lines), seed, 4, 32, None, None)
    return read_texts(subject, "wikitext-2", ["train"], form, chunk, max_tokens)


SMALL = {"chunk": 16, "max_rows": 300, "k_max": 4, "n_neighbors": 10, "map_rows": 50}
