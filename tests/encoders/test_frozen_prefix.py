"""States after frozen blocks from disk: those of the encoder, whatever the order and the damage."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from isotrain.encoders import frozen_prefix
from isotrain.encoders.frozen_prefix import FrozenPrefix, prefix_key
from isotrain.encoders.tiny import build_tiny
from isotrain.tasks.data.encoding import encode_pairs
from isotrain.training.data import collate

PAIRS = [("a dog sees " * n, "the cat") for n in range(1, 8)]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return build_tiny(width=16, n_blocks=3, n_heads=2).eval()


@pytest.fixture(params=["cross", "bi"])
def examples(request, encoder):
    found = encode_pairs(PAIRS, list(range(7)), encoder.tokenizer, request.param, max_length=48)
    return [dataclasses.replace(example, index=10 * example.index) for example in found]


@pytest.fixture
def prefix(encoder, examples, tmp_path, monkeypatch):
    """`prefix()`: states after block 2, in groups of three, always in the same files."""
    monkeypatch.setattr(frozen_prefix, "GROUP", 3)
    calls = []

    def compute(ids, types):
        calls.append(len(ids))
        return encoder.states_after(2, ids, types)

    def made():
        return FrozenPrefix(tmp_path, "key", examples, 2, encoder.width, compute)

    made.calls = calls
    return made


def check(prefix, encoder, examples, order):
    batch = collate([examples[i] for i in order], encoder.tokenizer.pad_token_id)
    with torch.no_grad():
        expected = encoder(batch, {}).hidden_states[2] * batch.attention_mask[..., None]
    torch.testing.assert_close(prefix(batch), expected, rtol=1e-5, atol=1e-6)


def test_the_states_are_those_of_the_encoder_and_computed_once(prefix, encoder, examples):
    found = prefix()
    for order in ([3, 0], [6, 5, 4, 3, 2, 1, 0], [2], [3, 0]):
        check(found, encoder, examples, order)
    assert sum(prefix.calls) == sum(len(example.input_ids) for example in examples)
    check(prefix(), encoder, examples, range(7))  # another run reads them
    assert sum(prefix.calls) == sum(len(example.input_ids) for example in examples)


@pytest.mark.parametrize("damage", ["cut in the head", "cut", "empty", "other shape", "gone"])
def test_a_damaged_group_is_computed_again(prefix, encoder, examples, tmp_path, damage):
    check(prefix(), encoder, examples, range(7))
    file = tmp_path / "key" / "0.npy"
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage == "other shape":
        np.save(file, np.zeros((2, 16), dtype=np.float32))
    else:
        file.write_bytes(content[: {"cut in the head": 5, "empty": 0}.get(damage, -3)])
    n_before = len(prefix.calls)
    check(prefix(), encoder, examples, range(7))
    assert len(prefix.calls) > n_before


def test_states_of_another_configuration_have_another_key(encoder, examples):
    def key():
        return prefix_key(encoder, 2, examples, "32-true")

    keys = [key()]
    encoder.model.config._name_or_path = "elsewhere"
    assert key() == keys[0]
    encoder.model.config.hidden_act = "relu"
    keys.append(key())
    encoder.model.embeddings.register_buffer("scale", torch.ones(1))
    keys.append(key())
    encoder.model.embeddings.scale += 1
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_a_state_is_the_same_bit_by_bit_in_any_order(prefix, encoder, examples, tmp_path):
    def states(order):
        for file in tmp_path.rglob("*.npy"):
            file.unlink()
        found = prefix()
        for number in order:
            found(collate([examples[number]], encoder.tokenizer.pad_token_id))
        return np.concatenate([found.states[group] for group in range(len(found.groups))])

    assert np.array_equal(states(range(7)), states(reversed(range(7))))


def test_the_key_names_weights_below_tokens_and_precision(encoder, examples):
    key = partial(prefix_key, encoder, 2, examples, "32-true")
    first = key()
    assert first == key()
    assert first != prefix_key(encoder, 1, examples, "32-true")
    assert first != prefix_key(encoder, 2, examples[1:], "32-true")
    assert first != prefix_key(encoder, 2, examples, "bf16-mixed")
    with torch.no_grad():
        next(encoder.blocks[2].parameters()).add_(1.0)
        assert first == key()
        next(encoder.blocks[1].parameters()).add_(1.0)
    assert first != key()
