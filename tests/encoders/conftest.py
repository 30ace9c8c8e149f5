"""Tiny random models of four families, saved as folders: no hub."""

import copy
import functools
import string

import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    GPT2Tokenizer,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

# D = 16, L = 2; 40 positions
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
MERGES = [("b", "a"), ("ba", "n"), ("ban", "k"), ("Ġ", "bank")]


def word_pieces():
    letters = string.ascii_lowercase + string.punctuation
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters)]
    return BertTokenizer(vocab={p: i for i, p in enumerate([*pieces, "bank"])}, do_lower_case=True)


def byte_level(kind, *specials):
    pieces = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, MERGES)]
    return kind(vocab={piece: i for i, piece in enumerate(pieces)}, merges=MERGES)


def bert():
    tokenizer = word_pieces()
    return tokenizer, BertModel(BertConfig(vocab_size=len(tokenizer), **SIZES))


def distilbert():
    tokenizer = word_pieces()
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    config = DistilBertConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes)
    return tokenizer, DistilBertModel(config)


def roberta():
    tokenizer = byte_level(RobertaTokenizer, "<s>", "<pad>", "</s>", "<unk>", "<mask>")
    sizes = {**SIZES, "max_position_embeddings": 42, "type_vocab_size": 1}
    config = RobertaConfig(vocab_size=len(tokenizer), pad_token_id=1, **sizes)
    return tokenizer, RobertaModel(config)


def gpt2():
    tokenizer = byte_level(GPT2Tokenizer, "<|endoftext|>")
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **sizes)
    return tokenizer, GPT2Model(config)


FAMILIES = {"bert": bert, "distilbert": distilbert, "roberta": roberta, "gpt2": gpt2}


def saving(families, tmp_path_factory):
    """`save(name)`: the folder of a random model and its tokenizer, made once."""

    @functools.cache
    def save(name):
        folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(0)
        for part in families[name]():
            part.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def save_family(tmp_path_factory):
    """`save_family("gpt2")`: the folder of a model and its tokenizer, the same for a session."""
    return saving(FAMILIES, tmp_path_factory)


@pytest.fixture(params=FAMILIES)
def family(request):
    """Each name in turn."""
    return request.param


@pytest.fixture(scope="session")
def loaded(save_family):
    """`loaded("gpt2")`: the encoder of a family from its folder, read once in a session."""
    from isotrain.encoders.huggingface import load_encoder

    return functools.cache(lambda family: load_encoder(str(save_family(family))))


@pytest.fixture
def encoder(loaded, family):
    """The encoder of that family, loaded from its folder and in train mode: a test's own copy."""
    return copy.deepcopy(loaded(family))
