"""Runs with parts of users: a task that names no classes, layers and tasks that cannot be tried."""

import pytest

from isotrain.cli import main

PARTS = """
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from isotrain.model.heads import LinearHead
from isotrain.tasks.pairs import PairTask
from isotrain.tasks.data.sources import DataSet
from isotrain.transforms.base import RowTransform

DATA = DataSet(
    name="rte",
    fields={"sentence1": str, "sentence2": str, "label": int},
    target="label",
)

class Mine(PairTask):
    data_set, name, monitor = DATA, "mine", "accuracy"
    def build_head(self, width, n_vectors):
        return LinearHead(width, n_vectors, 2)
    def loss(self, logits, labels):
        return torch.nn.functional.cross_entropy(logits, labels)
    def predictions(self, logits):
        return logits.argmax(dim=1)
    def metrics(self):
        return MetricCollection({"accuracy": MulticlassAccuracy(num_classes=2)})

class OneByOne(Mine):
    def encode(self, rows, tokenizer):
        return [super(OneByOne, self).encode([row], tokenizer)[0] for row in rows]

class Single(RowTransform):
    def __init__(self, width):
        super().__init__(width)
        self.map = torch.eye(width)  # no buffer: it stays float32
    def forward(self, x_ND):
        return x_ND @ self.map

class Half(Single):
    def forward(self, x_ND):
        if len(x_ND) < 32:
            raise KeyError("never so few")
        return 2 * x_ND
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


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("part", "told"),
    [
        (
            "task._target_=theirs.OneByOne",
            "lists with the texts of all examples, once for each of 1",
        ),
        ("isotropy._target_=theirs.Single", "must keep the dtype of what it is given"),
        ("isotropy._target_=theirs.Half", "are tried on float64 embeddings alone and in parts"),
    ],
)
def test_a_part_that_cannot_be_tried_is_refused(made_run, capsys, part, told):
    run = made_run("task=rte", "isotropy=none", part, "metric=[]")
    assert main(["export", str(run)]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (run / "export").exists()
