"""Traits of an architecture are tried: what differs from transformers is dropped or rejected."""

import copy
import pickle

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    RobertaPreLayerNormConfig,
)

from isotrain.encoders.fast import TAKEN, make_fast, without_dropout
from isotrain.encoders.freezing import depths, freeze_first_n, set_trainable
from isotrain.encoders.tiny import tiny_tokenizer
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.encoders.trial import (
    batch_of,
    check_own,
    distance,
    in_evaluation,
)

TOKENIZER = tiny_tokenizer()
SIZES = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
PATHS = ("dropout", "last_block", "packing", "frozen_prefix")


def encoder_of(config, kind=AutoModel.from_config):
    torch.manual_seed(0)
    return TransformerEncoder(kind(config), TOKENIZER, "own")


class Shifted(BertModel):
    """A BERT that adds a vector to its second block's output."""

    def __init__(self, config):
        super().__init__(config)
        self.shift = nn.Parameter(torch.ones(16))
        self.encoder.layer[1].output.register_forward_hook(lambda *of: of[2] + self.shift)


def test_weights_of_a_diverged_training_are_rejected():
    model = BertModel(BertConfig(**SIZES))
    model.encoder.layer[1].output.dense.weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match="BertModel give states that are not finite"):
        TransformerEncoder(model, TOKENIZER, "own")


def test_an_encoder_of_ones_own_is_tried_on_pads():
    class Mixing(type(encoder_of(BertConfig(**SIZES)))):
        def forward(self, batch, after_block):
            output = super().forward(batch, after_block)
            return output._replace(last=output.last - output.last.mean(dim=1, keepdim=True))

    encoder = encoder_of(BertConfig(**SIZES))
    check_own(encoder)
    encoder.__class__ = Mixing
    with pytest.raises(ValueError, match="depend on the pads of its batch in Mixing: state 4"):
        check_own(encoder)


def test_a_parameter_used_in_the_blocks_alone_counts_with_the_embeddings():
    encoder = encoder_of(BertConfig(**SIZES), Shifted)
    assert depths(encoder)["model.shift"] == 0
    (trained,) = freeze_first_n(encoder, 1, n_blocks=2).values()
    set_trainable(encoder, trained)
    before = encoder.eval()(batch_of(encoder), {}).hidden_states
    optimizer = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], 1.0)
    encoder.train()(batch_of(encoder), {}).last.square().sum().backward()
    optimizer.step()
    after = encoder.eval()(batch_of(encoder), {}).hidden_states
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [1, 1, 1, 0]


def test_a_shared_parameter_counts_to_the_lowest_of_its_places():
    encoder = encoder_of(BertConfig(**SIZES))
    encoder.blocks[1].output.LayerNorm.weight = encoder.embeddings.LayerNorm.weight
    assert depths(encoder)["model.embeddings.LayerNorm.weight"] == 0
    encoder.blocks[2].output.dense.weight = encoder.blocks[0].output.dense.weight
    assert depths(encoder)["model.encoder.layer.0.output.dense.weight"] == 1


def test_where_a_shortcut_skips_a_norm_the_step_is_exact():
    config = RobertaPreLayerNormConfig(**SIZES, initializer_range=0.3)
    exact, encoder = (encoder_of(config) for _ in range(2))
    fast, paths = make_fast(encoder, "first", highest=2, hindrances=dict.fromkeys(PATHS, ""))
    why = "its states differ from those of the exact step in a trial"
    assert (fast, paths) == (None, {"dropout": TAKEN} | dict.fromkeys(PATHS[1:], why))
    batch = batch_of(encoder)
    states, last = without_dropout(encoder, encoder, batch)
    expected, expected_last = without_dropout(exact, exact, batch)
    for pair in (*zip(states, expected, strict=True), (last, expected_last)):
        assert distance(*pair, batch.attention_mask) < 1e-5


def test_every_shortcut_of_bert_passes_its_trial():
    encoder = encoder_of(BertConfig(**SIZES))
    state = torch.random.get_rng_state()
    fast, paths = make_fast(encoder, "last", highest=2, hindrances=dict.fromkeys(PATHS, ""))
    assert paths == dict.fromkeys(PATHS, TAKEN)
    assert vars(fast) == {
        **{"encoder": encoder, "reads": "last", "packs": True},
        **{"n_frozen": 0, "frozen_states": None},
    }
    assert all(part.training for part in encoder.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_trial_leaves_no_trace():
    encoder = encoder_of(BertConfig(**SIZES))
    model = encoder.model
    hooks = {name: list(part._forward_hooks) for name, part in model.named_modules()}
    rates = [part.p for part in model.modules() if isinstance(part, nn.Dropout)]
    with in_evaluation(model):
        model(torch.ones(1, 4, dtype=torch.long), output_hidden_states=True)
        torch.rand(3)
    assert {name: list(part._forward_hooks) for name, part in model.named_modules()} == hooks
    assert rates == [0.1] * len(rates)
    assert model.training
    pickle.dumps(encoder)  # transformers' own hooks cannot be
    copy.deepcopy(encoder)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable")  # newer versions rename it
def test_recomputed_blocks_keep_the_edit_after_them():
    """Gradient checkpointing of a folder's configuration is off: the gradient is that without."""
    gradients = []
    for saves in (False, True):
        torch.manual_seed(0)
        model = BertModel(BertConfig(**SIZES, hidden_dropout_prob=0.0))
        if saves:
            model.gradient_checkpointing_enable()
        encoder = TransformerEncoder(model, TOKENIZER, "own")
        encoder.eval()  # no dropout of attention
        for part in encoder.modules():
            part.training = hasattr(part, "gradient_checkpointing")
        encoder(batch_of(encoder), {1: lambda x: x * x}).last.square().sum().backward()
        gradients.append(model.embeddings.word_embeddings.weight.grad)
    assert torch.equal(*gradients)
