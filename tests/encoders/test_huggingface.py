"""load_encoder over BERT, DistilBERT, RoBERTa and GPT-2: each right in its own traps."""

from __future__ import annotations

import shutil
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import transformers
from transformers import AutoModel, BertModel, OpenAIGPTConfig, OpenAIGPTModel

from isotrain.encoders.freezing import freeze_first_n, set_trainable
from isotrain.encoders.huggingface import EncoderUnavailableError, load_encoder
from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.model.pooling import LastPooling
from isotrain.tasks.data.encoding import encode_pairs
from isotrain.tasks.wic import WiC
from isotrain.training.data import collate

PAIRS = [("a bank by it", "the bank"), ("a bird", "an old red dog sees it"), ("a", "b")]
FORMS = ("cross", "bi")


def batch_for(tokenizer, form="cross", pairs=PAIRS):
    examples = encode_pairs(pairs, range(len(pairs)), tokenizer, form, max_length=40)
    return collate(examples, tokenizer.pad_token_id)


def states(encoder, batch, edits=None):
    encoder.eval()
    with torch.no_grad():
        return encoder(batch, edits or {})


def loss(encoder):
    """No power of two: behind a norm the sum and the square of a row are constants."""
    return encoder(batch_for(encoder.tokenizer), {}).last.pow(3).sum()


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


def test_what_is_loaded(encoder, family, save_family):
    assert encoder.source_id == str(save_family(family))
    assert all(module.training for module in encoder.modules())
    assert not any("pooler" in name for name, _ in encoder.named_parameters())
    assert encoder.max_positions == 40
    assert encoder.is_causal == (family == "gpt2")


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


PIECES = {
    "bert": ["[CLS]", "bank", "[SEP]", "a", "[SEP]"],
    "distilbert": ["[CLS]", "bank", "[SEP]", "a", "[SEP]"],
    "roberta": ["<s>", "bank", "</s>", "</s>", "a", "</s>"],
    "gpt2": ["bank", "<|endoftext|>", "a", "<|endoftext|>"],
}


def test_the_sentences_of_a_pair_are_kept_apart(encoder, family):
    tokenizer = encoder.tokenizer
    (cross,) = encode_pairs([("bank", "a")], [0], tokenizer, "cross", 40)
    assert tokenizer.convert_ids_to_tokens(cross.input_ids[0]) == PIECES[family]
    specials = [int(piece in tokenizer.all_special_tokens) for piece in PIECES[family]]
    assert cross.special_mask[0] == specials
    (bi,) = encode_pairs([("bank", "a")], [0], tokenizer, "bi", 40)
    for ids in bi.input_ids:
        assert tokenizer.decode(ids[-1]) in tokenizer.all_special_tokens
    (short,) = encode_pairs([("a" * 30, "a" * 9)], [0], tokenizer, "cross", 12)
    assert len(short.input_ids[0]) == 12
    assert short.input_ids[0][-1] == cross.input_ids[0][-1]


ROW = {
    "word": "bank",
    "sentence1": "by the bank, é!",
    "sentence2": "Bank or bank",
    **{"start1": 7, "end1": 11, "start2": 8, "end2": 12},
    "label": 1,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prompt", ["word", "none"])
def test_spans_are_the_tokens_of_the_word(encoder, family, form, prompt):
    (example,) = WiC(form=form, prompt=prompt).encode([ROW], encoder.tokenizer)
    spans = [
        (ids, span) for ids, s in zip(example.input_ids, example.spans, strict=True) for span in s
    ]
    assert len(spans) == 2
    for ids, (start, stop) in spans:
        pieces = encoder.tokenizer.convert_ids_to_tokens(ids[start:stop])
        assert pieces in (["bank"], ["Ġbank"])  # the space in front belongs to the token


EMBEDDINGS = {"gpt2": ("wte.", "wpe.")}
BLOCKS = {"distilbert": "transformer.layer.", "gpt2": "h."}


@pytest.mark.parametrize("n_blocks", [0, 1])
def test_what_is_frozen_and_what_trains(encoder, family, n_blocks):
    set_trainable(encoder, freeze_first_n(encoder, 1, n_blocks)[0])
    still = EMBEDDINGS.get(family, ("embeddings.",))
    if n_blocks:
        still = (*still, f"{BLOCKS.get(family, 'encoder.layer.')}0.")
    parameters = dict(encoder.model.named_parameters())
    before = {name: value.detach().clone() for name, value in parameters.items()}
    loss(encoder).backward()
    for name, value in parameters.items():
        assert value.requires_grad != name.startswith(still), name
        assert (value.grad is None) == name.startswith(still), name
        assert value.grad is None or bool(torch.isfinite(value.grad).all()), name
    torch.optim.AdamW([p for p in parameters.values() if p.requires_grad], lr=0.1).step()
    moved = {name for name, value in parameters.items() if not torch.equal(value, before[name])}
    assert moved == {name for name in parameters if not name.startswith(still)}


def test_the_longest_sequence_fits_and_no_longer_one(encoder):
    batch = batch_for(encoder.tokenizer, "bi", [("a" * 60, "a" * 60)])
    assert batch.input_ids.shape == (2, 40)
    assert bool(torch.isfinite(states(encoder, batch).last).all())
    longer = {
        name: torch.cat([getattr(batch, name), getattr(batch, name)[:, :1]], dim=1)
        for name in ("input_ids", "attention_mask", "token_type_ids", "special_mask")
    }
    with pytest.raises(ValueError, match=r"at most 40 tokens .* got 41; lower task\.max_length"):
        states(encoder, replace(batch, **longer))


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


def test_weights_saved_in_half_precision_load_as_float32(save_family, tmp_path):
    shutil.copytree(save_family("bert"), tmp_path, dirs_exist_ok=True)
    BertModel.from_pretrained(tmp_path).half().save_pretrained(tmp_path)
    assert BertModel.from_pretrained(tmp_path).dtype == torch.float16
    assert {p.dtype for p in load_encoder(str(tmp_path)).parameters()} == {torch.float32}


def test_an_encoder_that_cannot_be_had_says_what_else_there_is():
    with pytest.raises(EncoderUnavailableError) as caught:
        load_encoder("google-bert/bert-base-nowhere", revision="abc")
    message = str(caught.value)
    assert "'google-bert/bert-base-nowhere'" in message
    for way in ("encoder=minilm", "encoder=tiny", "encoder.name=", "'.[demo]'"):
        assert way in message


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    build_tiny(width=8, n_blocks=1, n_heads=1).model.save_pretrained(tmp_path)
    # transformers 5 gives a tokenizer of five words here, and all text would be [UNK].
    with pytest.raises((EncoderUnavailableError, ValueError), match=f"{tmp_path}.*tokenizer"):
        load_encoder(str(tmp_path))


def test_a_revision_is_part_of_the_record(monkeypatch):
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

    monkeypatch.setattr(transformers, "AutoModel", Model)
    monkeypatch.setattr(transformers, "AutoTokenizer", Tokenizer)
    encoder = load_encoder("some/model", revision="abc123")
    assert encoder.source_id == "some/model@abc123"
    assert all(module.training for module in encoder.modules())
    assert [(name, options["revision"]) for name, options in asked] == [
        ("some/model", "abc123"),
        ("some/model", "abc123"),
    ]
    assert all("trust_remote_code" not in options for _, options in asked)
    assert asked[0][1]["dtype"] == torch.float32


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
