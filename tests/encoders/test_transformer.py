"""TransformerEncoder over tiny random models: what it records, and the traps of transformers."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn

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
    model = build_tiny(width=8, n_blocks=1, n_heads=1).model.half()
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
