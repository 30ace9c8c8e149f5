"""Run folders made by hand: random weights of a family, fitted layers, a record; no training."""

from __future__ import annotations

import pytest
import torch
from omegaconf import OmegaConf

from isotrain.build import data_revision
from isotrain.config.compose import plain
from isotrain.export.rebuilt import dev_rows, made, model_of
from isotrain.model import reads_labels
from isotrain.results import write_json
from isotrain.training.data import collate
from tests.encoders.conftest import FAMILIES


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """`saved("gpt2")`: the folder of a random model and its tokenizer."""
    folders = {}

    def save(name):
        if name not in folders:
            folders[name] = folder = tmp_path_factory.mktemp(name)
            torch.manual_seed(0)
            for part in FAMILIES[name]():
                part.save_pretrained(folder)
        return folders[name]

    return save


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
        model = model_of(cfg, made(cfg.task))
        with torch.no_grad():
            for weight in model.parameters():  # norms and biases of their own, logits of size 1
                weight.add_(0.3 * torch.randn_like(weight))
        fit_layers(cfg, model)
        folder = tmp_path / name
        folder.mkdir()
        state = {f"model.{key}": value for key, value in model.state_dict().items()}
        torch.save({"state_dict": state}, folder / "last.ckpt")
        write_json(folder / "result.json", record(cfg))
        return folder

    return make


def fit_layers(cfg, model):
    """Freeze the statistics of every layer on the rows of dev, in the order of the forward pass."""
    task = made(cfg.task)
    tokenizer = model.encoder.tokenizer
    batch = collate(task.encode(dev_rows(cfg, task), tokenizer), tokenizer.pad_token_id)
    model.transforms.train()
    for site in model.sites:
        layer = model.transforms[site]
        with torch.no_grad():
            rows = model(batch).site_rows[site]
            layer.observe(rows.before, *[rows.labels] * reads_labels(layer))
            if layer.has_statistics:
                layer.fit()
        layer.eval()


def record(cfg):
    """A `result.json` with what an export reads."""
    OmegaConf.resolve(cfg)
    return {
        "status": "finished",
        "arm": "made",
        "seed": 0,
        "config": plain(cfg),
        "data": data_revision(cfg),
        "environment": {"torch": torch.__version__},
        "n_rows": {"train": 96, "dev": 32, "test": 0},
        "encoder": "a random model",
        "monitor": "val/accuracy",
        "headline": ["mean_cosine"],
        "scores": {"val/accuracy": 0.5},
        "steps": 0,
    }
