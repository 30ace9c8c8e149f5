"""What a part of one's own must take, and what is refused before any data are read."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from isotrain.objectives.base import Objective
from isotrain.training.data import TaskData
from isotrain.training.parts import check_calls
from isotrain.transforms.base import RowTransform
from isotrain.transforms.fitted import FittedTransform

TASK = SimpleNamespace(
    loss=lambda logits, labels: 0, predictions=lambda logits: 0, metrics=lambda: 0
)


class Centre(NamedTuple):
    centre: Tensor


class Fitted(FittedTransform[Centre]):
    def __init__(self):
        super().__init__(2, Centre(torch.zeros(2)), "batch", "frozen", 2)

    def estimate(self, x_ND):  # without `to_freeze`
        return Centre(x_ND.mean(dim=0))

    def transform(self, x_ND, stats, are_last):
        return x_ND - stats.centre


class Labelled(RowTransform):
    reads_labels = True

    def forward(self, x_ND):  # without labels
        return x_ND


class Unlabelled(Objective):
    def forward(self, views):  # without labels
        return views[0][0].mean()


class Blind(Objective):
    def forward(self, views, labels):
        return views[0][0].mean()

    def observe(self):  # without views and labels
        """Remember nothing."""


class Steps(Objective):
    def forward(self, views, labels):
        return views[0][0].mean()

    def asks_for_pass(self):  # without the epoch
        return True


def check_all(layer=None, objective=None, task=TASK):
    model = SimpleNamespace(transforms={} if layer is None else {"pooled": layer})
    objectives = {} if objective is None else {"mine": objective}
    check_calls(model, task, objectives)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"layer": Fitted()}, r"isotropy at pooled: estimate\(x_ND\) .* \(x_ND, to_freeze\)"),
        ({"layer": Labelled(2)}, r"isotropy at pooled: forward\(x_ND\) .* \(x_ND, labels_N\)"),
        (
            {"objective": Unlabelled(1.0)},
            r"objective=mine: forward\(views\) .*; let it take views, labels$",
        ),
        ({"objective": Blind(1.0)}, r"objective=mine: observe\(\) .* \(views, labels\)"),
        ({"objective": Steps(1.0)}, r"objective=mine: asks_for_pass\(\) .* \(epoch\)"),
        (
            {"task": SimpleNamespace(**{**vars(TASK), "predictions": lambda: 0})},
            r"task: .*\(\) is called with \(logits\)",
        ),
    ],
)
def test_a_member_that_cannot_take_what_it_is_given_is_refused(parts, told):
    with pytest.raises(ValueError, match=told):
        check_all(**parts)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("objective=[cosreg]", "objective.cosreg.reads=[layer_9/tokens]"), "layer_0 .* layer_2"),
        (("site=[layer_9]", "isotropy=zca"), "layer_1 to layer_2"),
    ],
)
def test_a_block_that_the_encoder_lacks_is_told_before_data_are_read(
    built, monkeypatch, overrides, told
):
    monkeypatch.setattr(TaskData, "setup", pytest.fail)
    with pytest.raises(ValueError, match=told):
        built("task=rte", "metric=[]", *overrides)


def test_nodes_count_as_processes(built):
    """Two nodes of one device each share a batch."""
    whole = built("task=rte", "metric=[]", "data.batch_size=2")
    shared = built("task=rte", "metric=[]", "data.batch_size=2", "+trainer.num_nodes=2")
    assert (whole.trainer.world_size, shared.trainer.world_size) == (1, 2)
    assert whole.data.n_batches(1) == shared.data.n_batches(2)
    with pytest.raises(ValueError, match=r"each of 2 .* an example, and data\.batch_size"):
        built("task=rte", "metric=[]", "data.batch_size=1", "+trainer.num_nodes=2")


def test_processes_at_several_stages_stop(monkeypatch):
    """One resumes from a checkpoint, which the other found damaged."""
    stages = [("hash", "fit"), ("hash", "validate")]
    monkeypatch.setattr("isotrain.training.data.of_all_processes", lambda own: stages)
    data = TaskData(None, None, None, 1, 1, "random", 0, name="hash")
    with pytest.raises(RuntimeError, match=r"one resume\.ckpt, and they are at hash fit, hash val"):
        data.setup("fit")
