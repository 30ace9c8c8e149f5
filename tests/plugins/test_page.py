"""The examples of docs/plugins.md, run as they stand there."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch.nn.functional import cosine_similarity, cross_entropy

from isotrain.keys import place_of
from isotrain.plugins.fit_layers import FitLayersCallback
from isotrain.plugins.trainer_callback import IsotropyTrainerCallback

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TRAINER, LOOP, LAYER, LOSS = range(4)
pytestmark = pytest.mark.filterwarnings("default")  # those of the Trainers are not ours


@pytest.fixture
def classified(bert, tokenizer, texts):
    """What a user of the Trainer has: a model that gives a loss, and data sets with labels."""
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification(bert.config)
    rows = tokenizer(texts * 2)
    dataset = Dataset.from_dict({**rows, "labels": [0, 1] * len(texts)})
    return {"model": model, "tokenizer": tokenizer, "train": dataset, "dev": dataset}


def run(number, names, folder, monkeypatch):
    monkeypatch.chdir(folder)
    torch.manual_seed(0)
    exec(compile(BLOCKS[number], str(PAGE), "exec"), names)
    return names


def measured_at(trainer):
    """Steps of the log with isotropy values, and the keys of the first."""
    rows = [row for row in trainer.state.log_history if any(map(place_of, row))]
    return [row["step"] for row in rows], {key for key in rows[0] if place_of(key)}


def test_no_block_is_longer_than_fifteen_lines():
    assert len(BLOCKS) == 4
    assert max(len(block.splitlines()) for block in BLOCKS) <= 15


def test_the_callback_logs_each_layer_at_the_start_at_evaluations_and_at_the_end(
    classified, texts, tmp_path, monkeypatch, capsys
):
    trainer = run(TRAINER, {**classified, "texts": texts}, tmp_path, monkeypatch)["trainer"]
    steps, keys = measured_at(trainer)
    assert steps == [0, 2, 4]
    for layer in ("layer_00", "layer_01", "layer_02"):
        for view in ("cls", "tokens", "mean"):
            assert {f"isotropy/{m}/{layer}/{view}" for m in ("mean_cosine", "n_rows")} <= keys
    assert "4 layer_02 tokens mean_cosine" in capsys.readouterr().out


def test_a_layer_in_a_loop_is_fitted_and_gives_what_its_statistics_say(tmp_path, monkeypatch):
    batches = [(torch.randn(12, 8), torch.tensor([0, 1] * 6)) for _ in range(4)]
    names = run(LOOP, {"batches": batches}, tmp_path, monkeypatch)
    layer, x = names["layer"], names["encoder"](batches[0][0])
    assert int(layer.queue.n_filled) == 4 * 12
    assert torch.equal(layer(x)[:3], layer(x[:3]))  # no row depends on its batch-mates


def test_the_callback_of_layers_observes_each_step_and_fits_before_evaluations(
    classified, bert, tmp_path, monkeypatch
):
    from torch import nn
    from transformers import Trainer, TrainingArguments

    from isotrain.transforms.cluster_pca import ClusterPCA

    args = TrainingArguments(
        "out",
        max_steps=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        report_to=[],
        remove_unused_columns=False,
    )
    names = {
        **classified,
        "nn": nn,
        "Trainer": Trainer,
        "ClusterPCA": ClusterPCA,
        "FitLayersCallback": FitLayersCallback,
        "args": args,
        "model": bert,
    }
    for split in ("train", "dev"):
        names[split] = names[split].remove_columns("token_type_ids")
    trainer = run(LAYER, names, tmp_path, monkeypatch)["trainer"]
    layer = trainer.model.isotropy
    assert int(layer.queue.n_filled) == 3 * 2 * 2
    assert int(layer.queue.batch_rows) == 2  # rows of a forward pass, not of a step
    assert bool(layer.is_fitted)
    assert not layer._forward_pre_hooks
    assert sum("eval_loss" in row for row in trainer.state.log_history) == 2


def test_the_loss_trains_a_sentence_transformer_and_is_that_of_the_formulas(
    sentence_model, texts, tmp_path, monkeypatch
):
    pairs = Dataset.from_dict({"anchor": texts, "positive": texts[1:] + texts[:1]})
    before = deepcopy(sentence_model)
    names = {
        "model": sentence_model,
        "pairs": pairs,
        "IsotropyTrainerCallback": IsotropyTrainerCallback,
    }
    trainer = run(LOSS, names, tmp_path, monkeypatch)["trainer"]

    a, b = (before.encode(pairs[column], convert_to_tensor=True) for column in pairs.column_names)
    cosines = cosine_similarity(a[:, None], b[None], dim=2)
    simcse = cross_entropy(cosines / 0.05, torch.arange(len(a)))
    unit = torch.nn.functional.normalize(torch.cat([a, b]))
    distances = torch.pdist(unit.double()).square()
    uniformity = torch.exp(-2.0 * distances).mean().log()
    first = trainer.state.log_history[1]  # the row before it is the isotropy at step 0
    assert first["step"] == 1
    assert first["simcse"] == pytest.approx(simcse.item(), abs=2e-4)
    assert first["uniformity"] == pytest.approx(0.1 * uniformity.item(), abs=2e-4)
    assert first["loss"] == pytest.approx(first["simcse"] + first["uniformity"], abs=2e-4)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert losses[-1] < losses[0]
    assert measured_at(trainer)[0] == [0, 4]
    assert "Simple Contrastive Learning" in (trainer.model.model_card_data.citations or {}).get(
        "SentenceLoss", ""
    )
