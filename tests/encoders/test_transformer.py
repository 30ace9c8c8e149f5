"""TransformerEncoder over tiny random models of each family: what it records, and their traps."""

import pickle
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import AutoModel, OpenAIGPTConfig, OpenAIGPTModel

from isotrain.encoders.freezing import freeze_first_n
from isotrain.encoders.huggingface import load_encoder
from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.model.pooling import LastPooling
from isotrain.tasks.data.encoding import collate, encode_pairs

PAIRS = [("a bank by it", "the bank"), ("a bird", "an old red dog sees it"), ("a", "b")]
FORMS = ("cross", "bi")


def batch_for(tokenizer, form="cross", pairs=PAIRS):
    examples = encode_pairs(pairs, range(len(pairs)), tokenizer, form, max_length=40)
    return collate(examples, tokenizer.pad_token_id)


def states(encoder, batch, edits=None):
    encoder.eval()
    with torch.no_grad():
        return encoder(batch, edits or {})


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    return build_tiny(width=16, n_blocks=3, n_heads=2).eval()


@pytest.mark.parametrize("form", FORMS)
def test_states_are_those_of_transformers(encoder, family, save_family, form):
    batch = batch_for(encoder.tokenizer, form)
    segments = {"token_type_ids": batch.token_type_ids} if family == "bert" else {}
    clean = AutoModel.from_pretrained(save_family(family)).eval()
    with torch.no_grad():
        own = clean(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            output_hidden_states=True,
            **segments,
        )
    found = states(encoder, batch)
    assert (encoder.n_blocks, encoder.width) == (2, 16)
    assert len(found.hidden_states) == len(own.hidden_states) == 3
    for ours, theirs in zip(found.hidden_states[:-1], own.hidden_states[:-1], strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(found.last, own.last_hidden_state)
    last = found.hidden_states[-1]
    if family == "gpt2":  # state L is what block L produced; transformers shows the norm of it
        assert not torch.allclose(last, own.hidden_states[-1])
        last = clean.ln_f(last)
    torch.testing.assert_close(last, own.hidden_states[-1])


def test_a_cut_encoder_is_the_whole_one_up_to_its_last_block(
    encoder, family, save_family, tmp_path
):
    """Bit for bit, and so is what transformers loads after it was saved."""
    cut = load_encoder(str(save_family(family)), n_blocks=1)
    batch = batch_for(cut.tokenizer)
    found, whole = states(cut, batch), states(encoder, batch)
    assert (cut.n_blocks, cut.width) == (1, encoder.width)
    assert cut.source_id == f"{save_family(family)}, cut after block 1"
    for ours, theirs in zip(found.hidden_states, whole.hidden_states[:2], strict=True):
        assert torch.equal(ours, theirs)
    (names,) = freeze_first_n(cut, 1, n_blocks=1).values()
    assert all(name.startswith("model.ln_f") for name in names)  # GPT-2's norm after the last block
    cut.model.save_pretrained(tmp_path)
    again = TransformerEncoder(AutoModel.from_pretrained(tmp_path), cut.tokenizer, "saved")
    assert torch.equal(states(again, batch).last, found.last)
    with pytest.raises(ValueError, match=r"encoder\.n_blocks must be at most 2 .* got 3; null"):
        load_encoder(str(save_family(family)), n_blocks=3)


def test_keys_and_values_are_not_kept(encoder):
    kept = []
    encoder.model.register_forward_hook(lambda *parts: kept.append(parts[2].get("past_key_values")))
    states(encoder, batch_for(encoder.tokenizer))
    assert kept == [None]


@pytest.mark.parametrize("block", [1, 2])
def test_an_edit_flows_on_and_is_not_recorded(encoder, block):
    batch = batch_for(encoder.tokenizer)
    plain = states(encoder, batch)
    edited = states(encoder, batch, {block: lambda hidden: hidden.flip(-1)})
    for layer in range(3):
        unchanged = torch.equal(edited.hidden_states[layer], plain.hidden_states[layer])
        assert unchanged == (layer <= block)
    assert not torch.allclose(edited.last, plain.last)


def test_what_follows_a_block_reads_exactly_the_edit(tiny):
    seen = []
    tiny.blocks[2].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    batch = batch_for(tiny.tokenizer)
    plain = states(tiny, batch)
    edited = states(tiny, batch, {2: lambda hidden: hidden + 1.0, 3: lambda hidden: 2.0 * hidden})
    assert torch.equal(seen[1], plain.hidden_states[2] + 1.0)
    assert torch.equal(edited.last, 2.0 * edited.hidden_states[3])


def test_an_edit_is_forgotten_after_the_call_and_after_an_error(tiny):
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


@pytest.mark.parametrize("form", FORMS)
def test_pads_change_nothing(encoder, form):
    batch = batch_for(encoder.tokenizer, form)
    assert (batch.attention_mask == 0).any()
    together = states(encoder, batch)
    for i, pair in enumerate(PAIRS):
        alone = batch_for(encoder.tokenizer, form, [pair])
        apart = states(encoder, alone)
        for q in range(batch.n_sequences):
            n = int(alone.attention_mask[q].sum())
            for big, small in zip(together.hidden_states, apart.hidden_states, strict=True):
                torch.testing.assert_close(big[q * len(PAIRS) + i, :n], small[q, :n])


def test_only_a_table_of_segments_reads_segments(encoder, family):
    batch = batch_for(encoder.tokenizer)
    other = replace(batch, token_type_ids=1 - batch.token_type_ids)
    same = torch.equal(states(encoder, batch).last, states(encoder, other).last)
    assert same == (family != "bert")


def test_the_longest_sequence_fits(encoder):
    batch = batch_for(encoder.tokenizer, "bi", [("a" * 60, "a" * 60)])
    assert batch.input_ids.shape == (2, encoder.max_positions)
    assert bool(torch.isfinite(states(encoder, batch).last).all())


def test_the_first_token_of_a_causal_model_sees_nothing_and_the_last_one_all(encoder, family):
    pairs = [("a bank", "it"), ("a dog", "it")]
    batch = batch_for(encoder.tokenizer, "cross", pairs)
    last = states(encoder, batch).last
    first = {"gpt2": 0}.get(family, 1)  # the token "a", behind CLS if there is one
    assert torch.allclose(last[0, first], last[1, first], atol=1e-6) == (family == "gpt2")
    pooled = LastPooling()(last, batch)
    assert not torch.allclose(pooled[0], pooled[1], atol=1e-6)


def test_looking_for_causality_draws_nothing(save_family, family):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load_encoder(str(save_family(family)))
    assert torch.equal(torch.rand(1), expected)


def test_gpt_whose_blocks_give_lists():
    """OpenAI's first GPT: other names of its embeddings, no norm behind the last block."""
    tokenizer = build_tiny(8, 1, 1).tokenizer
    config = OpenAIGPTConfig(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=40
    )
    model = OpenAIGPTModel(config)
    encoder = TransformerEncoder(model, tokenizer, "tiny gpt")
    batch = batch_for(tokenizer)
    found = states(encoder, batch)
    with torch.no_grad():
        own = model(batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True)
    assert encoder.is_causal
    assert encoder.max_positions == 40
    for ours, theirs in zip(found.hidden_states, own.hidden_states, strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(found.last, own.last_hidden_state)
    halved = states(encoder, batch, {1: lambda x: x / 2})
    torch.testing.assert_close(halved.hidden_states[1], found.hidden_states[1])
    assert not torch.allclose(halved.last, found.last)


def test_the_state_dict_has_each_tensor_once(encoder):
    stored = encoder.state_dict()
    assert {name.partition(".")[0] for name in stored} == {"model"}
    assert len(stored) == len({value.data_ptr() for value in stored.values()})


def test_half_precision_is_rejected():
    model = build_tiny(width=8, n_blocks=1, n_heads=1).model.half()
    with pytest.raises(ValueError, match=r"torch\.float16.*dtype=torch\.float32"):
        TransformerEncoder(model, None, "half")


def test_a_model_without_blocks_is_rejected():
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="Linear has no ModuleList of blocks"):
        TransformerEncoder(model, None, "linear")
