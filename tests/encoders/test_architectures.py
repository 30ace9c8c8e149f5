"""Architectures of transformers, tiny and random: no silent difference, or rejected by name.

For each: recorded states against transformers' own, a padded text against the text alone, the fast
step against the exact one, and the states of frozen blocks before and after three steps.
"""

import pytest
import torch
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from isotrain.encoders.fast import make_fast, without_dropout
from isotrain.encoders.freezing import freeze_first_n, set_trainable
from isotrain.encoders.tiny import tiny_tokenizer
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.encoders.trial import batch_of, distance

TOKENIZER = tiny_tokenizer()
SIZES = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.3,  # large weights: every part of a block shows in its states
}
OWN = {
    "longformer": {"attention_window": [16] * 3},
    "xmod": {"default_language": "en_XX"},
    "gpt_bigcode": {"attn_pdrop": 0.0},  # dropped by this rate, not by a module
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    },
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
}
ACCEPTED = """
    bert camembert data2vec-text deberta deberta-v2 distilbert electra ernie gpt2 llama
    longformer modernbert mpnet roberta roberta-prelayernorm xlm-roberta
"""
ACCEPTED_TOO = """
    arcee apertus biogpt diffllama esm eurobert exaone4 gemma gemma2 gemma3_text
    glm glm4 gpt_bigcode gte jina_embeddings_v3 megatron-bert minicpm3 ministral mistral
    mobilebert modernbert-decoder nomic_bert olmo olmo2 olmo3 openai-gpt persimmon phi
    phi3 qwen2 qwen3 rembert roc_bert smollm3 stablelm starcoder2 xlm-roberta-xl xmod
"""
REFUSED = {
    "albert": "6 hidden states of AlbertModel are seen, not 2; each block must run once",
    "fnet": "depend on the pads of its batch in FNetModel",
    "convbert": "depend on the pads of its batch in ConvBertModel",
    "big_bird": "a forward pass changes BigBirdModel: .*attention_type",  # for one short text
    "bart": "BartModel has none of embeddings",
    "opt": "OPTModel has none of embeddings",
}
REFUSED_TOO = {
    "bloom": "BloomModel has none of embeddings",
    "flaubert": "hidden state 1 of FlaubertModel is not what its blocks show",
    "nystromformer": "depend on the pads of its batch in NystromformerModel",
}


PATHS = ("dropout", "last_block", "packing", "frozen_prefix")


def model_of(name):
    torch.manual_seed(0)
    return AutoModel.from_config(CONFIG_MAPPING[name](**SIZES, **OWN.get(name, {})))


def campaign(names):
    return [pytest.param(name, marks=pytest.mark.campaign) for name in names]


@pytest.mark.parametrize("name", [*ACCEPTED.split(), *campaign(ACCEPTED_TOO.split())])
def test_an_architecture_differs_in_nothing(name):
    encoder = TransformerEncoder(model_of(name), TOKENIZER, name)  # tries states and pads
    batch = batch_of(encoder)
    exact = without_dropout(encoder, encoder, batch)
    step, _paths = make_fast(encoder, "all", highest=3, hindrances=dict.fromkeys(PATHS, ""))
    fast = without_dropout(encoder, step or encoder, batch)
    for one, other in zip((*fast[0], fast[1]), (*exact[0], exact[1]), strict=True):
        assert distance(one, other, batch.attention_mask) < 1e-4

    (trained,) = freeze_first_n(encoder, 1, n_blocks=2).values()
    set_trainable(encoder, trained)
    optimizer = torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], lr=1e-2)
    with torch.no_grad():
        before = encoder.eval()(batch, {}).hidden_states
    encoder.train()
    for _ in range(3):
        optimizer.zero_grad()
        encoder(batch, {}).last.square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        after = encoder.eval()(batch, {}).hidden_states
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True] * 3 + [False]


@pytest.mark.parametrize(("name", "said"), REFUSED.items())
def test_an_architecture_is_rejected_by_name(name, said):
    with pytest.raises(ValueError, match=said):
        TransformerEncoder(model_of(name), TOKENIZER, name)


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "said"), REFUSED_TOO.items())
def test_another_architecture_is_rejected_by_name(name, said):
    test_an_architecture_is_rejected_by_name(name, said)
