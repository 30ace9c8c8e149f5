"""The model card: its head, its scores with intervals, isotropy around the layer, citations."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from scipy.stats import bootstrap, spearmanr
from sklearn.metrics import matthews_corrcoef

from isotrain.export.card import (
    _is_ours,
    _is_published,
    card_scores,
    citations,
    isotropy_rows,
)
from isotrain.results.statistics import accuracy_interval
from isotrain.runs.files import read_result, write_result
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.tasks.text import Text
from tests.processes import ROOT
from tests.stored_texts import same_text


@pytest.fixture
def run(tmp_path):
    """A record with predictions of 400 rows, 300 of them right, and a log of three evaluations."""
    label = np.arange(400) % 2
    wrong = np.arange(400) % 4 == 0
    found = Predictions(np.arange(400), label, np.where(wrong, 1 - label, label))
    write_predictions(tmp_path, "dev", found)
    rows = [
        {"step": step, "isotropy/lid/pooled/before": a, "isotropy/lid/pooled/after": b}
        | {"isotropy/n_rows/pooled/before": 64, "isotropy/n_rows/pooled/after": 64}
        | {"isotropy/rank/pooled/after": 9.0, "isotropy/lid/layer_01/cls": 5.0}
        for step, a, b in ((0, 1.0, 2.0), (10, 3.0, 4.0), (20, 5.0, 6.0))
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    result = {
        "monitor": "val/accuracy",
        "headline": ["lid"],
        "selected_step": 10,
        "n_rows": {"dev": 400, "test": 50},
        "scores": {"val/loss": 1.0, "val/own": 0.5, "val/accuracy": 0.75, "test/accuracy": 0.7},
    }
    return tmp_path, result


def test_the_interval_of_a_score_is_that_of_its_rows(run):
    found = {(one.split, one.name): one for one in card_scores(*run, ("accuracy", "own"))}
    assert [*found] == [("dev", "accuracy"), ("dev", "own"), ("test", "accuracy")]
    dev = found["dev", "accuracy"]
    assert dev.interval == accuracy_interval("val/accuracy", 0.75, 400), "as at the end of a run"
    assert dev.n_examples == 400
    assert found["dev", "own"].interval is None
    assert found["test", "accuracy"].interval == accuracy_interval("test/accuracy", 0.7, 50)
    assert found["test", "accuracy"].n_examples == 50


def test_the_interval_of_a_correlation_is_a_bootstrap_of_examples(run):
    generator = np.random.default_rng(0)
    label = generator.normal(size=300)
    prediction = label + generator.normal(size=300)
    write_predictions(run[0], "dev", Predictions(np.arange(300), label, prediction))
    value = spearmanr(label, prediction).statistic
    run[1]["scores"] = {"val/spearman": value, "test/spearman": 0.5}
    dev, test = card_scores(*run, ("spearman",))
    own = bootstrap(
        (label, prediction),
        lambda x, y: spearmanr(x, y).statistic,
        paired=True,
        rng=0,
        n_resamples=2000,
    )
    assert dev.interval == pytest.approx(own.confidence_interval, abs=0.02)
    assert test.interval is None, "its predictions are not kept"
    write_predictions(run[0], "dev", Predictions(np.arange(300), label, np.zeros(300)))
    assert card_scores(*run, ("spearman",))[0].interval is None, "constant predictions have no rank"


def test_matthews_has_an_interval_within_its_range(run):
    label, prediction = np.array([0, 0, 0, 1, 1, 1] * 2), np.array([1, 1, 1, 0, 0, 1] * 2)
    write_predictions(run[0], "dev", Predictions(np.arange(12), label, prediction))
    run[1]["scores"] = {"val/matthews": matthews_corrcoef(label, prediction)}
    low, high = card_scores(*run, ("matthews",))[0].interval
    assert -1.0 <= low < run[1]["scores"]["val/matthews"] < high <= 1.0


def test_isotropy_is_of_the_input_and_output_of_a_layer(run):
    assert isotropy_rows(*run) == [
        ("site", "metric", "of the layer", "step 0", "kept weights (step 10)", "N"),
        ("pooled", "lid", "layer input", "1", "3", "64"),
        ("pooled", "lid", "output", "2", "4", "64"),
    ]
    assert isotropy_rows(run[0], {}) == []


CARDS = {
    "pairs": ("task=rte", "isotropy=all_but_the_top", "isotropy.n_components=1"),
    "sentences": (
        *("task=stsb", "task.form=bi", "pooling=mean", "task.prefix=['one: ','two: ']"),
        *("task.scaled_cosine=true", "training.head_lr_factor=100"),
        *("isotropy=cluster_pca", "isotropy.n_clusters=3", "objective=simcse"),
    ),
}
ROUNDING = r"[\d.]+(e-\d+)?(?= \((limit|rms))|(?<=gives: )[\d.]+"


@pytest.mark.parametrize("name", CARDS)
def test_the_whole_card(made_run, export, name):
    run = made_run(*CARDS[name], family="tiny")
    if name == "sentences":
        scores = {"val/spearman": 0.5, "val/pearson": 0.25, "test/spearman": 0.4, "val/loss": 1.0}
        more = {"scores": scores, "overrides": ["task=stsb", "task.prefix=['one: ','two: ']"]}
        write_result(run, read_result(run) | more)
    else:
        lines = [{"step": s, "isotropy/mean_cosine/pooled/after": 0.5 - s / 100} for s in (0, 10)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    form = "transformers" if name == "pairs" else "sentence-transformers"
    text = (export(run, form) / "README.md").read_text()
    text = text.replace(str(run), "RUN").replace(torch.__version__, "VERSION")
    same_text(f"card_{name}.md", re.sub(ROUNDING, "#", text))


def test_a_score_has_its_scale(made_run, export):
    text = (export(made_run("task=stsb", "metric=[]")) / "README.md").read_text()
    assert "Scores of 0 and 1 are 0 and 5 of `score`." in text


@pytest.mark.parametrize("form", ["transformers", "sentence-transformers"])
@pytest.mark.parametrize("is_from_python", [True, False])
def test_a_folder_is_one_of_the_hub_without_a_path_of_the_machine(
    made_run, export, form, is_from_python, tmp_path
):
    """What the hub reads of an upload: metadata of the card, a config, weights as safetensors."""
    run = made_run("task=stsb", "task.form=bi", "isotropy=cluster_pca", "metric=[]")
    result = read_result(run)
    name = result["config"]["encoder"]["name"]
    assert name.startswith("/")
    scores = {"monitor": "val/spearman", "scores": {"val/spearman": 0.5}}
    result |= {"encoder": f"{name}@1a2b, cut after block 2", **scores}
    if not is_from_python:
        result["overrides"] = ["task=stsb", f"encoder.name={name}", "--config-dir=/mine"]
    write_result(run, result)
    folder = export(run, form)
    card = ModelCard.load(folder / "README.md", ignore_metadata_errors=False)
    assert card.data.library_name == form
    assert card.data.pipeline_tag in ("feature-extraction", "sentence-similarity")
    (score,) = card.data.eval_results
    assert (score.metric_type, score.metric_value) == ("spearman", 0.5)
    assert {"README.md", "config.json", "model.safetensors"} <= {f.name for f in folder.iterdir()}
    for file in (f for f in folder.rglob("*") if f.is_file()):
        content = file.read_bytes()
        for path in (name, tmp_path, folder, ROOT, Path.home(), "/mine"):
            assert str(path).encode() not in content, file
    given = f"task=stsb encoder.name={Path(name).name} --config-dir=mine"
    assert ("started from Python" if is_from_python else given) in card.text


def test_parts_and_data_are_cited():
    config = {
        "task": {"_target_": "isotrain.tasks.text.Text"},
        "source": {"_target_": "isotrain.tasks.data.sources.HubSource"},
        "peft": {"_target_": "isotrain.encoders.adapters.lora"},
        "encoder": {"_target_": "isotrain.encoders.huggingface.load_encoder"},
        "isotropy": {"_target_": "isotrain.transforms.cluster_pca.ClusterPCA", "n_clusters": 8},
        "objective": {"simcse": {"_target_": "isotrain.objectives.simcse.SimCSE"}},
        "optimizer": {"_target_": "isotrain.training.muon.MuonAdamW"},
        "freezing": {"_target_": "isotrain.encoders.freezing.freeze_nothing"},
    }

    def keys():
        found = citations(config, "xlm-roberta", Text.data_sets)
        return [entry.partition("{")[2].partition(",")[0] for entry in found]

    method = ["rajaee2021cluster", "rajaee2021finetuning", "gao2021simcse", "jordan2024muon"]
    parts = ["conneau2020unsupervised", "hu2022lora", *method]
    assert keys() == [*parts, "merity2017pointer", "cer2017semeval"]
    config["source"] = {"_target_": "isotrain.tasks.data.demo_generator.DemoSource"}
    assert keys() == parts


def test_data_of_somebodys_own_are_not_called_english_or_published():
    node = {"_target_": "isotrain.tasks.classification.Classification", "data_set": None}
    preset_node = node | {"data_set": {"hub_id": "nyu-mll/glue"}}
    hub = {"_target_": "isotrain.tasks.data.sources.HubSource"}
    for task, data, expected in (
        (node, {}, False),
        (preset_node, {}, True),
        (preset_node, {"path": "a.csv"}, False),
        (preset_node, {"hub": "a/b"}, False),
    ):
        config = {"task": task, "data": data, "source": hub}
        assert (_is_ours(config), _is_published(config)) == (expected, expected)
