"""The examples of docs/plugins.md and README.md, each run as it stands there."""

import re
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch.nn.functional import cosine_similarity, cross_entropy

from isotrain.runs.keys import parse_key

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TRAINER, MONITOR, LOOP, LAYER, LOSS = range(5)
OF_THE_READER = {"model", "tokenizer", "train", "dev", "texts", "pairs", "batches"}  # it says so
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
    assert set(names) <= OF_THE_READER
    monkeypatch.chdir(folder)
    torch.manual_seed(0)
    exec(compile(BLOCKS[number], str(PAGE), "exec"), names)
    return names


def measured_at(trainer):
    """Steps of the log with isotropy values, and the keys of the first."""
    rows = [row for row in trainer.state.log_history if any(map(parse_key, row))]
    return [row["step"] for row in rows], {key for key in rows[0] if parse_key(key)}


def test_the_readme_subtracts_a_mean_and_logs_every_layer(
    classified, texts, tmp_path, monkeypatch, capsys
):
    from transformers import Trainer, TrainingArguments

    page = PAGE.parents[1] / "README.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    args = TrainingArguments("out", max_steps=2, report_to=[])
    trainer = Trainer(
        classified["model"], args, train_dataset=classified["train"],
        processing_class=classified["tokenizer"],
    )  # fmt: skip
    x = torch.randn(256, 384, generator=torch.Generator().manual_seed(0)) + 1
    exec(compile(code, str(page), "exec"), names := {"trainer": trainer, "texts": texts, "x": x})
    torch.testing.assert_close(names["layer"](x), x - x.mean(0), rtol=0, atol=1e-5)
    before, after = map(float, re.findall(r"tensor\(([^,]+),", capsys.readouterr().out)[:2])
    assert after < 0.01 < 0.4 < before
    steps, keys = measured_at(trainer)
    assert steps == [0, 2]
    assert {"isotropy/mean_cosine/layer_02/tokens", "isotropy/n_rows/layer_00/mean"} <= keys


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


def test_a_loop_of_ones_own_measures_each_layer_with_a_metric_of_ones_own(
    classified, tokenizer, texts, tmp_path, monkeypatch
):
    given = tokenizer(texts, padding=True, return_tensors="pt")
    batches = [{**given, "labels": torch.tensor([0, 1] * 3)}] * 2
    names = {"model": classified["model"], "tokenizer": tokenizer, "texts": texts}
    start, *_, end = run(MONITOR, names | {"batches": batches}, tmp_path, monkeypatch)["history"]
    assert start.keys() == end.keys()
    for layer in ("layer_00", "layer_01", "layer_02"):
        assert (
            start[f"isotropy/cosine_drift/{layer}/cls"]
            == 0
            < end[f"isotropy/cosine_drift/{layer}/cls"]
        )
        assert end[f"isotropy/row_norm/{layer}/tokens"] > 0


def test_a_layer_in_a_loop_is_fitted_and_gives_what_its_statistics_say(tmp_path, monkeypatch):
    batches = [(torch.randn(12, 8), torch.tensor([0, 1] * 6)) for _ in range(4)]
    names = run(LOOP, {"batches": batches}, tmp_path, monkeypatch)
    layer, x = names["layer"], names["encoder"](batches[0][0])
    assert int(layer.queue.n_filled) == 4 * 12
    others = torch.cat([x[:3], 2.0 * x[3:].flip(0) + 1.0])  # as many rows, other batch-mates
    assert torch.equal(layer(x)[:3], layer(others)[:3])
    torch.testing.assert_close(layer(x)[:3], layer(x[:3]))  # another N: rounded in another order


def test_the_callback_of_layers_observes_each_step_and_fits_before_evaluations(
    classified, bert, tmp_path, monkeypatch
):
    trainer = run(LAYER, {**classified, "model": bert}, tmp_path, monkeypatch)["trainer"]
    layer = trainer.model.isotropy
    assert int(layer.queue.n_filled) == 2 * (8 + 4)  # two epochs of twelve rows, eight a batch
    assert bool(layer.is_fitted)
    assert not layer._forward_pre_hooks
    assert sum("eval_loss" in row for row in trainer.state.log_history) == 2


def test_the_loss_trains_a_sentence_transformer_and_is_that_of_the_formulas(
    sentence_model, texts, tmp_path, monkeypatch
):
    pairs = Dataset.from_dict({"anchor": texts, "positive": texts[1:] + texts[:1]})
    before = deepcopy(sentence_model)
    names = run(LOSS, {"model": sentence_model, "pairs": pairs}, tmp_path, monkeypatch)
    trainer = names["trainer"]
    assert names["simcse"].counters == {
        "anchors_skipped": 0.0
    }  # of the last batch, as the page says

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
