"""Freezing: exactly the named parameters train, from exactly the named steps on."""

import pytest
import torch

from isotrain.encoders.freezing import (
    depths,
    freeze_embeddings,
    freeze_encoder,
    freeze_first_n,
    freeze_nothing,
    rest_frozen_parts,
    set_trainable,
    train_biases,
    train_head_first,
    train_last_n,
    train_layer_norms,
    train_only,
    unfreeze_gradually,
)
from isotrain.encoders.tiny import build_tiny
from isotrain.types import Batch

EPOCH = 7  # steps

# How each family names its parts, written out by hand; families have two blocks.
STEM = {"gpt2": ("model.wte.", "model.wpe."), "tiny": ("model.embeddings.",)}
BLOCK = {
    "distilbert": "model.transformer.layer.{}.",
    "gpt2": "model.h.{}.",
}
BEHIND = {"gpt2": ("model.ln_f.",)}


def of(encoder, family, *parts):
    """Names under the parts: 0 = embeddings, 1.. = blocks, "behind" = the norm at the end."""
    starts = []
    for part in parts:
        if part == 0:
            starts += STEM.get(family, ("model.embeddings.",))
        elif part == "behind":
            starts += BEHIND.get(family, ())
        else:
            starts.append(BLOCK.get(family, "model.encoder.layer.{}.").format(part - 1))
    names = [name for name, _ in encoder.named_parameters()]
    return {name for name in names if name.startswith(tuple(starts))}


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    return build_tiny(width=8, n_blocks=3, n_heads=1, dropout=0.0)


def test_the_parts_are_all_there_is(encoder, family):
    names = {name for name, _ in encoder.named_parameters()}
    assert of(encoder, family, 0, 1, 2, "behind") == names
    assert bool(of(encoder, family, "behind")) == (family == "gpt2")


def test_levels(encoder, family):
    depth = depths(encoder)
    for part, expected in ((0, 0), (1, 1), (2, 2), ("behind", 3)):
        assert {depth[name] for name in of(encoder, family, part)} <= {expected}
    assert list(depth) == [name for name, _ in encoder.named_parameters()]


@pytest.mark.parametrize(
    ("freezing", "options", "parts"),
    [
        (freeze_nothing, {}, (0, 1, 2, "behind")),
        (freeze_embeddings, {}, (1, 2, "behind")),
        (freeze_first_n, {"n_blocks": 0}, (1, 2, "behind")),
        (freeze_first_n, {"n_blocks": 1}, (2, "behind")),
        (freeze_first_n, {"n_blocks": 2}, ("behind",)),
        (train_last_n, {"n_blocks": 1}, (2, "behind")),
        (train_last_n, {"n_blocks": 2}, (1, 2, "behind")),
        (freeze_encoder, {}, ()),
    ],
)
def test_what_trains_throughout(encoder, family, freezing, options, parts):
    assert freezing(encoder, EPOCH, **options) == {0: of(encoder, family, *parts)}


@pytest.mark.parametrize(("unit", "factor"), [("epoch", EPOCH), ("step", 1)])
@pytest.mark.parametrize("every", [1, 3])
def test_gradual(encoder, family, unit, factor, every):
    every_steps = every * factor
    assert unfreeze_gradually(encoder, EPOCH, every=every, unit=unit) == {
        0: of(encoder, family, 2, "behind"),
        every_steps: of(encoder, family, 1, 2, "behind"),
        2 * every_steps: of(encoder, family, 0, 1, 2, "behind"),
    }


def test_biases_and_norms(encoder, family):
    kinds = {
        name: type(encoder.get_submodule(name.rpartition(".")[0])).__name__
        for name, _ in encoder.named_parameters()
    }
    assert set(kinds.values()) <= {"Linear", "LayerNorm", "Embedding", "Conv1D"}
    norms = {name for name, kind in kinds.items() if kind == "LayerNorm"}
    biases = {name for name in kinds if name.rpartition(".")[2] == "bias"}
    assert train_layer_norms(encoder, EPOCH) == {0: norms}
    assert train_biases(encoder, EPOCH) == {0: biases}
    n_norms = {"bert": 5, "roberta": 5, "distilbert": 5, "gpt2": 5}[family]  # 2 a block, 1 more
    assert len(norms) == 2 * n_norms
    assert {parameter.ndim for n, parameter in encoder.named_parameters() if n in biases} == {1}


def test_patterns_match_whole_names_and_add_up(tiny):
    query = {f"model.encoder.layer.{k}.attention.self.query.weight" for k in range(3)}
    key_2 = {f"model.encoder.layer.2.attention.self.key.{end}" for end in ("weight", "bias")}
    patterns = ["*.query.weight", "model.encoder.layer.[2-9].*.key.*"]
    assert train_only(tiny, EPOCH, patterns=patterns) == {0: query | key_2}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["*.query.wieght"], r"\*\.query\.wieght matches no parameter .* the nearest is model\."),
        (["*bias", "layernorm"], "layernorm matches no parameter"),
        ([], "must have at least one pattern"),
    ],
)
def test_a_pattern_without_a_match(tiny, patterns, message):
    with pytest.raises(ValueError, match=message):
        train_only(tiny, EPOCH, patterns=patterns)


@pytest.mark.parametrize(
    ("freezing", "n", "message"),
    [
        (freeze_first_n, -1, "n_blocks must be at least 0, got -1"),
        (freeze_first_n, 4, r"freezing\.n_blocks must be at most 3 .* got 4"),
        (train_last_n, 0, "n_blocks must be at least 1, got 0"),
        (train_last_n, 4, r"freezing\.n_blocks must be at most 3 .* got 4"),
    ],
)
def test_a_block_that_is_not_there(tiny, freezing, n, message):
    with pytest.raises(ValueError, match=message):
        freezing(tiny, EPOCH, n_blocks=n)


def test_an_encoder_without_the_part_that_would_train(tiny):
    class Bare(torch.nn.Module):
        n_blocks = 1

        def __init__(self):
            super().__init__()
            self.embeddings = torch.nn.Embedding(3, 2)
            self.blocks = [torch.nn.Linear(2, 2, bias=False)]
            self.register_module("block", self.blocks[0])

    for freezing, what in ((train_biases, "biases"), (train_layer_norms, "normalisation layers")):
        with pytest.raises(ValueError, match=f"this encoder has no {what}"):
            freezing(Bare(), EPOCH)


def batch(n=2, length=6):
    ids = torch.arange(10, 10 + n * length).reshape(n, length)
    ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
    return Batch(ids, ones, zeros, zeros, torch.zeros(n), torch.arange(n))


def test_what_is_frozen_rests(encoder, family):
    """The dropout behind GPT-2's embeddings rests with them, though it is no part of them."""
    set_trainable(encoder, freeze_first_n(encoder, EPOCH, n_blocks=1)[0])
    rest_frozen_parts(encoder)
    states = [encoder(batch(), {}).hidden_states for _ in range(2)]
    assert [one.equal(two) for one, two in zip(*states, strict=True)] == [True, True, False]
    set_trainable(encoder, freeze_nothing(encoder, EPOCH)[0])
    rest_frozen_parts(encoder)
    assert all(module.training for module in encoder.modules())


@pytest.mark.parametrize("n_blocks", [0, 1])
def test_what_trains_gets_a_finite_gradient_and_the_rest_none(encoder, n_blocks):
    trained = freeze_first_n(encoder, EPOCH, n_blocks=n_blocks)[0]
    set_trainable(encoder, trained)
    encoder(batch(), {}).last.pow(3).sum().backward()  # behind a norm, sum and square are constant
    found = {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}
    assert found.keys() == trained
    assert all(bool(gradient.isfinite().all()) for gradient in found.values())


@pytest.mark.parametrize(
    ("n_steps", "share", "first"),
    [(30, 0.2, 6), (12, 0.1, 1), (3, 0.1, 1), (3, 0.9, 2), (1, 0.2, 0), (0, 0.2, 0), (7, 0.9, 6)],
)
def test_the_head_first(encoder, family, n_steps, share, first):
    found = train_head_first(encoder, EPOCH, n_steps=n_steps, share=share)
    whole = of(encoder, family, 0, 1, 2, "behind")
    assert found == ({0: set(), first: whole} if first else {0: whole})
