"""Runs with parts of users: a task that names no classes."""

import pytest

PARTS = """
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from isotrain.model.heads import LinearHead
from isotrain.tasks.texts import TextTask

class Mine(TextTask):
    monitor = "accuracy"
    def __init__(self, max_length=128, **keys_of_rte):
        super().__init__(
            "mine", ["sentence1", "sentence2"], "label", int, "cross", max_length, 0.1, "",
            {"folders": ["rte"]},
        )
    def build_head(self, width, n_vectors):
        return LinearHead(width, n_vectors, 2)
    def loss(self, logits, labels):
        return torch.nn.functional.cross_entropy(logits, labels)
    def predictions(self, logits):
        return logits.argmax(dim=1)
    def metrics(self):
        return MetricCollection({"accuracy": MulticlassAccuracy(num_classes=2)})
    def label(self, row):
        return int(row["label"])
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ISOTRAIN_ALLOW", "theirs")


@pytest.mark.usefixtures("parts")
def test_a_task_that_names_no_classes_is_exported(made_run, export, of_the_run, loaded):
    run = made_run("task=rte", "task._target_=theirs.Mine", "isotropy=none", "metric=[]")
    folder, known = export(run), of_the_run(run)
    found = loaded(folder, known.columns, "cls")
    assert (found - known.output.logits).abs().max() < 1e-6
    card = (folder / "README.md").read_text()
    assert "print(logits)  # 0, 1\n" in card
    assert "nyu-mll/glue" not in card
