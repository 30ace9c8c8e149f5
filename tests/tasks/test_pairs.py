"""A task of sentence pairs in few lines: what the base gives it."""

import pytest
import torch

from isotrain.tasks.classification import Classification
from isotrain.tasks.data.sources import Source

ROWS = [{"sentence1": "q", "sentence2": "z", "label": label} for label in ("no", "perhaps", "yes")]


class Nli(Classification):
    """Three classes, and no row about a k."""

    def __init__(self, form="cross", max_length=128):
        pair, classes = ("sentence1", "sentence2"), ("no", "perhaps", "yes")
        super().__init__("nli", pair, "label", classes, form, max_length)

    def check_row(self, row):
        if row["sentence1"] == "k":
            raise ValueError(f"{row['at']}: a k")


class Fixed(Source):
    """Equal rows in each split, but for the test."""

    def __init__(self, test):
        self.test = test

    def revision_of(self, data_set):
        return "here"

    def read(self, data_set, split):
        return self.test if split == "test" else ROWS


def test_a_task_of_a_few_lines_loads_encodes_and_scores(tokenizer):
    task = Nli(form="bi", max_length=5)
    splits = task.load(Fixed([ROWS[2], {**ROWS[0], "label": -1}]))
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 3, "dev": 3, "test": 1}
    examples = task.encode(splits["dev"], tokenizer)
    assert [(len(e.input_ids), e.spans, e.label) for e in examples] == [
        (2, None, 0),
        (2, None, 1),
        (2, None, 2),
    ]
    assert {type(e.label) for e in examples} == {int}
    assert (Nli("cross").n_sequences, task.n_sequences) == (1, 2)
    logits = task.build_head(4, n_vectors=2)(torch.zeros(3, 2, 4))
    assert logits.shape == (3, 3)
    scores = task.metrics()
    scores.update(task.predictions(2 * torch.eye(3)), torch.tensor([0, 1, 1]))
    assert float(scores.compute()[task.monitor]) == pytest.approx(2 / 3)
    assert task.loss(logits, torch.tensor([0, 1, 2])).item() > 0


def test_a_row_that_the_task_rejects_is_reported():
    with pytest.raises(ValueError, match="here test row 0: a k"):
        Nli().load(Fixed([{**ROWS[0], "sentence1": "k"}]))


def test_a_hidden_test_row_is_not_judged():
    hidden = {**ROWS[0], "sentence1": "k", "label": None}
    assert Nli().load(Fixed([hidden]))["test"] == []
