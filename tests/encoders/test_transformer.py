"""TransformerEncoder over tiny random models: what it records, and the traps of transformers."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertModel,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

from isotrain.encoders.huggingface import EncoderUnavailableError, load_encoder
from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.tasks.encoding import encode_pairs
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
    from dataclasses import replace

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


# Folders of the three BERT-like families, built from a configuration: no hub.

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
WORDS += ["##" + c for c in "abcdefghijklmnopqrstuvwxyz"]


def bert_tokenizer():
    return BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}, do_lower_case=True)


def save_bert(folder):
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)


def save_distilbert(folder):
    config = DistilBertConfig(vocab_size=len(WORDS), dim=16, n_layers=2, n_heads=2, hidden_dim=32)
    DistilBertModel(config).save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)


def save_roberta(folder):
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġ", *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = RobertaTokenizer(vocab={p: i for i, p in enumerate(pieces)}, merges=[])
    config = RobertaConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        type_vocab_size=1,
        max_position_embeddings=66,
        pad_token_id=1,
    )
    RobertaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


FAMILIES = {"bert": save_bert, "distilbert": save_distilbert, "roberta": save_roberta}


@pytest.fixture(params=FAMILIES)
def folder(request, tmp_path):
    torch.manual_seed(0)
    FAMILIES[request.param](tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_a_folder_loads_and_records_what_transformers_does(folder, form):
    encoder = load_encoder(str(folder))
    assert (encoder.n_blocks, encoder.width) == (2, 16)
    assert encoder.source_id == str(folder)
    assert all(module.training for module in encoder.modules())
    assert not any("pooler" in name for name, _ in encoder.named_parameters())
    batch = batch_for(encoder.tokenizer, form)
    encoder.eval()
    with torch.no_grad():
        output = encoder(batch, {})
    expected, _ = own_states(encoder, batch)
    assert len(output.hidden_states) == 3
    for found, wanted in zip(output.hidden_states, expected, strict=True):
        torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        edited = encoder(batch, {1: lambda hidden: hidden + 1.0})
    assert torch.equal(edited.hidden_states[1], output.hidden_states[1])
    assert not torch.equal(edited.hidden_states[2], output.hidden_states[2])


def test_every_parameter_is_used(folder):
    encoder = load_encoder(str(folder))
    encoder(batch_for(encoder.tokenizer), {}).last.square().sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.grad is None] == []


def test_weights_saved_in_half_precision_load_as_float32(tmp_path):
    save_bert(tmp_path)
    BertModel.from_pretrained(tmp_path).half().save_pretrained(tmp_path)
    assert BertModel.from_pretrained(tmp_path).dtype == torch.float16
    assert {p.dtype for p in load_encoder(str(tmp_path)).parameters()} == {torch.float32}


def test_an_encoder_that_cannot_be_had_says_what_else_there_is():
    with pytest.raises(EncoderUnavailableError) as caught:
        load_encoder("google-bert/bert-base-nowhere", revision="abc")
    message = str(caught.value)
    assert "'google-bert/bert-base-nowhere'" in message
    for way in ("encoder=minilm", "encoder=tiny", "encoder.name=", "isotrain[demo]"):
        assert way in message


def test_a_folder_that_is_not_there_is_unavailable(tmp_path):
    with pytest.raises(EncoderUnavailableError):
        load_encoder(str(tmp_path / "none"))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    BertModel(
        BertConfig(
            vocab_size=30,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
        )
    ).save_pretrained(tmp_path)
    # transformers 5 gives a tokenizer of five words here, and all text would be [UNK].
    with pytest.raises((EncoderUnavailableError, ValueError), match=f"{tmp_path}.*tokenizer"):
        load_encoder(str(tmp_path))


def test_a_revision_is_part_of_the_record(monkeypatch):
    from isotrain.encoders import huggingface

    asked = []
    tiny = build_tiny(width=8, n_blocks=1, n_heads=1)

    class Model:
        @staticmethod
        def from_pretrained(name, **options):
            asked.append((name, options))
            return deepcopy(tiny.model).eval()

    class Tokenizer:
        @staticmethod
        def from_pretrained(name, **options):
            asked.append((name, options))
            return tiny.tokenizer

    monkeypatch.setattr(huggingface, "AutoModel", Model)
    monkeypatch.setattr(huggingface, "AutoTokenizer", Tokenizer)
    encoder = load_encoder("some/model", revision="abc123")
    assert encoder.source_id == "some/model@abc123"
    assert all(module.training for module in encoder.modules())
    assert [(name, options["revision"]) for name, options in asked] == [
        ("some/model", "abc123"),
        ("some/model", "abc123"),
    ]
    assert all("trust_remote_code" not in options for _, options in asked)
    assert asked[0][1]["dtype"] == torch.float32


# The tiny encoder


def test_the_seed_decides_the_weights_of_tiny():
    def weights(seed):
        torch.manual_seed(seed)
        return next(build_tiny(width=8, n_blocks=1, n_heads=1).parameters())

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_tiny_spells_what_it_does_not_know(tiny):
    ids = tiny.tokenizer("Zxqy!")["input_ids"]
    assert tiny.tokenizer.convert_ids_to_tokens(ids) == [
        "[CLS]",
        "z",
        "##x",
        "##q",
        "##y",
        "!",
        "[SEP]",
    ]
    assert tiny.tokenizer.unk_token_id not in ids
