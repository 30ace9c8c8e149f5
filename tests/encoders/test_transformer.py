"""TransformerEncoder over tiny random models: what it records, and the traps of transformers."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.tasks.data.encoding import encode_pairs
from isotrain.training.data import collate

PAIRS = [("a dog sees the cat", "the cat"), ("a bird", "an old red horse likes it"), ("a", "b")]


def batch_for(tokenizer, form="cross"):
    examples = encode_pairs(PAIRS, [0, 1, 0], tokenizer, form, max_length=48)
    return collate(examples, tokenizer.pad_token_id)


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    return build_tiny(width=16, n_blocks=3, n_heads=2)


def own_states(encoder, batch):
    """What transformers records by itself, from a copy without our hooks."""
    clean = type(encoder.model)(encoder.model.config)
    clean.load_state_dict(encoder.model.state_dict(), strict=False)
    segments = {"token_type_ids": batch.token_type_ids} if encoder._takes_segments else {}
    with torch.no_grad():
        return (
            clean.eval()(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                output_hidden_states=True,
                **segments,
            ).hidden_states,
            clean,
        )


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_states_are_those_of_transformers(tiny, form):
    batch = batch_for(tiny.tokenizer, form)
    tiny.eval()
    with torch.no_grad():
        output = tiny(batch, {})
    expected, clean = own_states(tiny, batch)
    assert len(output.hidden_states) == len(expected) == 4
    for found, wanted in zip(output.hidden_states, expected, strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(output.last, output.hidden_states[-1])
    with torch.no_grad():
        embedded = clean.embeddings(batch.input_ids, token_type_ids=batch.token_type_ids)
    assert torch.equal(output.hidden_states[0], embedded)


def test_token_types_reach_the_model(tiny):
    batch = batch_for(tiny.tokenizer)
    assert batch.token_type_ids.sum() > 0
    tiny.eval()

    other = replace(batch, token_type_ids=torch.zeros_like(batch.token_type_ids))
    assert not torch.equal(tiny(batch, {}).last, tiny(other, {}).last)


def test_pads_change_nothing(tiny):
    tiny.eval()
    batch = batch_for(tiny.tokenizer)
    short = collate(
        encode_pairs(PAIRS[2:], [0], tiny.tokenizer, "cross", 48), tiny.tokenizer.pad_token_id
    )
    n = short.input_ids.shape[1]
    torch.testing.assert_close(tiny(batch, {}).last[2:, :n], tiny(short, {}).last)


def test_an_edit_flows_on_and_is_not_recorded(tiny):
    tiny.eval()
    batch = batch_for(tiny.tokenizer)
    with torch.no_grad():
        plain, edited = tiny(batch, {}), tiny(batch, {2: lambda hidden: hidden + 1.0})
    for layer in (0, 1, 2):
        assert torch.equal(plain.hidden_states[layer], edited.hidden_states[layer])
    assert not torch.equal(plain.hidden_states[3], edited.hidden_states[3])
    assert not torch.equal(plain.last, edited.last)
    # The last state is block 3 of the edited rows, no more and no less.
    seen = []
    handle = tiny.blocks[2].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        tiny(batch, {2: lambda hidden: hidden + 1.0})
    handle.remove()
    assert torch.equal(seen[0], plain.hidden_states[2] + 1.0)


def test_an_edit_of_the_last_block_changes_what_leaves(tiny):
    tiny.eval()
    batch = batch_for(tiny.tokenizer)
    with torch.no_grad():
        plain, edited = tiny(batch, {}), tiny(batch, {3: lambda hidden: 2.0 * hidden})
    assert all(map(torch.equal, plain.hidden_states, edited.hidden_states))
    assert torch.equal(edited.last, 2.0 * plain.last)


def test_an_edit_is_forgotten_after_the_call_and_after_an_error(tiny):
    tiny.eval()
    batch = batch_for(tiny.tokenizer)
    plain = tiny(batch, {}).last

    def fail(hidden):
        raise RuntimeError("edit")

    with pytest.raises(RuntimeError, match="edit"):
        tiny(batch, {1: fail})
    assert torch.equal(tiny(batch, {}).last, plain)
    assert len(tiny(batch, {}).hidden_states) == 4


def test_gradients_reach_the_embeddings_through_an_edit(tiny):
    tiny(batch_for(tiny.tokenizer), {1: lambda hidden: hidden * 2.0}).last.sum().backward()
    assert tiny.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_train_mode_means_dropout(tiny):
    batch = batch_for(tiny.tokenizer)
    assert all(module.training for module in tiny.modules())
    assert not torch.equal(tiny(batch, {}).last, tiny(batch, {}).last)


@pytest.mark.parametrize("copied", [deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_record_for_themselves(tiny, copied):
    batch = batch_for(tiny.tokenizer)
    tiny.eval()
    before = tiny(batch, {1: lambda hidden: hidden + 1.0})
    copy = copied(tiny)
    with torch.no_grad():
        next(copy.parameters()).add_(1.0)
    output = copy(batch, {})
    assert len(output.hidden_states) == 4
    assert not torch.equal(output.hidden_states[0], before.hidden_states[0])
    again = tiny(batch, {1: lambda hidden: hidden + 1.0})
    assert len(again.hidden_states) == 4
    assert all(map(torch.equal, again.hidden_states, before.hidden_states))


def test_half_precision_is_refused():
    model = BertModel(
        BertConfig(
            vocab_size=30,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
        )
    ).half()
    with pytest.raises(ValueError, match=r"torch\.float16.*dtype=torch\.float32"):
        TransformerEncoder(model, None, "half")


def test_a_model_without_blocks_is_refused():
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"Linear has none of encoder\.layer"):
        TransformerEncoder(model, None, "linear")


def test_the_state_dict_has_each_tensor_once(encoder):
    stored = encoder.state_dict()
    assert {name.partition(".")[0] for name in stored} == {"model"}
    assert len(stored) == len({value.data_ptr() for value in stored.values()})
