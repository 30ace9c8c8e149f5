"""Run folders made by hand: random weights of a family, fitted layers, a record; no training.

What a run gives is computed here from its record and weights, without the code of the export.
"""

import string
from typing import Any, NamedTuple

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    BertTokenizer,
    CamembertConfig,
    CamembertModel,
    CamembertTokenizer,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)

from isotrain.build import isotropic_model
from isotrain.cli import main
from isotrain.config.compose import config_of, plain
from isotrain.config.parts import make as make_part
from isotrain.export.rebuilt import dev_rows, model_of
from isotrain.runs.files import read_result, write_json
from isotrain.tasks.data.encoding import collate
from isotrain.training.revision import revision, source_of
from tests.encoders.conftest import FAMILIES, SIZES, saving, word_pieces
from tests.stopped_runs import save_weights


def sentence_pieces(tokenizer_class, config_class, model_class):
    """Letters as pieces, words begin with ▁; positions count from behind the pad, as RoBERTa's."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = [*specials, "▁", *string.ascii_letters, *string.punctuation, "▁bank"]
    tokenizer = tokenizer_class(vocab=[(piece, -1.0) for piece in pieces])
    sizes = {**SIZES, "max_position_embeddings": 42, "type_vocab_size": 1, "pad_token_id": 1}
    return tokenizer, model_class(config_class(vocab_size=len(tokenizer), **sizes))


def left():
    """A BERT with segments whose tokenizer gives none by itself, and pads at the left."""
    options = {"model_input_names": ["input_ids", "attention_mask"], "padding_side": "left"}
    tokenizer = BertTokenizer(vocab=word_pieces().get_vocab(), do_lower_case=True, **options)
    return tokenizer, BertModel(BertConfig(vocab_size=len(tokenizer), **SIZES))


ALL = FAMILIES | {
    "xlm-roberta": lambda: sentence_pieces(XLMRobertaTokenizer, XLMRobertaConfig, XLMRobertaModel),
    "camembert": lambda: sentence_pieces(CamembertTokenizer, CamembertConfig, CamembertModel),
    "left": left,
}


class Known(NamedTuple):
    """What a run gives for its dev, in float64."""

    rows: list[dict[str, Any]]
    columns: tuple[list[str], list[str]]
    batch: Any
    states: Any  # what leaves the encoder
    output: Any
    model: Any


@pytest.fixture
def of_the_run():
    """`of_the_run(folder)`: what its weights give, by the parts of the record alone."""

    @torch.no_grad()
    def compute(folder):
        cfg = config_of(read_result(folder))
        task, encoder = make_part(cfg.task), make_part(cfg.encoder)
        rows = task.load(source_of(cfg))["dev"]
        model = isotropic_model(cfg, task, make_part(cfg.pooling), encoder)
        make_part(cfg.peft, encoder=encoder)
        state = load_file(folder / "weights.safetensors")
        model.load_state_dict({key.removeprefix("model."): x for key, x in state.items()})
        if cfg.data.hypothesis_only:
            rows = [{**row, "sentence1": ""} for row in rows]
        batch = collate(task.encode(rows, encoder.tokenizer), encoder.tokenizer.pad_token_id)
        model.eval().double()
        columns = tuple([row[name] for row in rows] for name in task.text)
        return Known(rows, columns, batch, encoder(batch, {}).last, model(batch), model)

    return compute


@pytest.fixture
def loaded():
    """`loaded(folder, texts, "cls")`: logits, or without a pooling states, in float64."""

    @torch.no_grad()
    def compute(folder, texts, pooling=None):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModel.from_pretrained(folder).eval().double()
        inputs = tokenizer(*texts, truncation=True, padding=True, return_tensors="pt")
        states, mask = model(**inputs).last_hidden_state, inputs["attention_mask"].bool()
        if pooling is None:
            assert not (folder / "head.safetensors").exists()
            return states[mask]
        real = [one[own] for one, own in zip(states, mask, strict=True)]
        pool = {"cls": lambda x: x[0], "last": lambda x: x[-1], "mean": lambda x: x.mean(dim=0)}
        head = {name: x.double() for name, x in load_file(folder / "head.safetensors").items()}
        return torch.stack(list(map(pool[pooling], real))) @ head["weight"].T + head["bias"]

    return compute


@pytest.fixture
def export():
    """`export(run)`: the folder of an export that succeeds."""

    def to_folder(run, form="transformers"):
        assert main(["export", str(run), "--format", form]) == 0
        return run / "export" / form

    return to_folder


def same_logits(found_BC, known):
    """Whether logits are those of a run, to 1e-6 of the largest or 1."""
    scale = max(1.0, float(known.output.logits.abs().max()))
    torch.testing.assert_close(found_BC, known.output.logits, rtol=0, atol=1e-6 * scale)


@pytest.fixture
def exported_as_run(export, of_the_run, loaded):
    """`exported_as_run(run, "cls")`: an export whose logits are those of the run, and the run."""

    def check(run, pooling):
        folder, known = export(run), of_the_run(run)
        same_logits(loaded(folder, known.columns, pooling), known)
        return folder, known

    return check


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """`saved("gpt2")`: the folder of a random model and its tokenizer."""
    return saving(ALL, tmp_path_factory)


@pytest.fixture
def made_run(composed, small, saved, tmp_path):
    """`made_run("isotropy=zca", family="gpt2")`: a finished run folder, in well under a second.

    The families spell words in letters and cut them at 32 tokens; `tiny` knows words.
    """

    def make(*overrides, family="bert", name="run"):
        encoder = ["encoder=huggingface", "task.max_length=32"]
        if family == "tiny":
            encoder = ["encoder=tiny", "encoder.width=16"]
        else:
            encoder.append(f"encoder.name={saved(family)}")
        base = [o for o in small if not o.startswith("encoder")]
        cfg = composed(*base, *encoder, *overrides, "threads=1", f"output_dir={tmp_path}")
        torch.manual_seed(1)
        task = make_part(cfg.task)
        task.load(source_of(cfg))
        model = model_of(cfg, task)
        with torch.no_grad():
            for weight in model.parameters():  # norms and biases of their own, logits of size 1
                weight.add_(0.3 * torch.randn_like(weight))
        fit_layers(cfg, model)
        folder = tmp_path / name
        folder.mkdir()
        state = {f"model.{key}": value for key, value in model.state_dict().items()}
        write_json(folder / "result.json", record(cfg))
        save_weights(state, folder)
        return folder

    return make


def fit_layers(cfg, model):
    """Freeze the statistics of every layer on the rows of dev, in the order of the forward pass."""
    task = make_part(cfg.task)
    tokenizer = model.encoder.tokenizer
    batch = collate(task.encode(dev_rows(cfg, task), tokenizer), tokenizer.pad_token_id)
    model.transforms.train()
    for site in model.sites:
        layer = model.transforms[site]
        with torch.no_grad():
            rows = model(batch).site_embeddings[site]
            layer.observe(rows.before, *[rows.labels] * layer.reads_labels)
            if layer.has_statistics:
                layer.fit(*[rows.before] * (layer.recent_rows() is None))  # it keeps none
        layer.eval()


def record(cfg):
    """A `result.json` with what an export reads."""
    OmegaConf.resolve(cfg)
    return {
        "status": "finished",
        "method": "made",
        "seed": 0,
        "config": plain(cfg),
        "data": revision(cfg),
        "environment": {"torch": torch.__version__},
        "n_rows": {"train": 96, "dev": 32, "test": 0},
        "encoder": "a random model",
        "monitor": "val/accuracy",
        "headline": ["mean_cosine"],
        "scores": {"val/accuracy": 0.5},
        "steps": 0,
        "device": "cpu",
    }
