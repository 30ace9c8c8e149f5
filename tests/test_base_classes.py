"""Base classes of parts: defaults and kinds."""

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from isotrain.config.parts import make
from isotrain.encoders.base import Encoder
from isotrain.encoders.tiny import build_tiny
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task
from isotrain.tasks.data.sources import Source
from isotrain.transforms.base import RowTransform
from tests.parts import RTE


class Mean(Objective):
    """The least that an objective says."""

    def forward(self, views, labels):
        return views[0][0].mean()


def test_an_objective_that_says_no_more_than_its_loss_has_every_default():
    class Tokens(Mean):
        reads = ("all/tokens",)

    class Observes(Mean):
        def observe(self, views, labels):
            """Look."""

    mean = Mean(0.5)
    assert (mean.weight, mean.reads, mean.n_views, mean.needs) == (0.5, ("pooled",), 1, "rows")
    assert (mean.positives, mean.counters, mean.remembers) == (None, {}, False)
    assert (mean.asks_for_pass(0), mean.state_dict()) == (False, {})
    assert (Tokens(1.0).reads, Tokens(1.0, ["layer_1/cls"]).reads) == (
        ("all/tokens",),
        ["layer_1/cls"],
    )
    assert Observes(1.0).remembers


def test_a_module_that_a_part_sets_is_not_hidden_by_a_default():
    class Blocks(Encoder):
        def __init__(self):
            super().__init__(2, None, "here")
            self.blocks = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, batch, after_block):
            """Never called."""

    assert set(Blocks().state_dict()) == {"blocks.0.weight", "blocks.0.bias"}


def test_a_source_that_says_no_more_than_its_examples_has_every_default():
    class Mine(Source):
        def read(self, data_set, split):
            return []

    assert Mine().missing(RTE().data_set) is None
    assert Mine().revision_of(RTE().data_set).endswith("Mine")


class Plain:
    """No part of any kind; it takes what a node gives it."""

    def __init__(self, weight=1.0):
        self.weight = weight


@pytest.mark.parametrize(
    ("group", "base"),
    [
        ("objective.cosreg", Objective),
        ("task", Task),
        ("encoder", Encoder),
        ("isotropy", RowTransform),
        ("source", Source),
    ],
)
def test_a_part_of_another_kind_is_rejected_with_the_class_to_inherit_from(group, base):
    cfg = OmegaConf.create()
    OmegaConf.update(cfg, group, {"_target_": f"{__name__}.Plain"})
    node = OmegaConf.select(cfg, group)
    with pytest.raises(
        ValueError,
        match=rf"^{group}: Plain is no .*; let it inherit from {base.__module__}\.{base.__name__}$",
    ):
        make(node, base)


def test_an_encoder_counts_its_blocks():
    encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    assert (encoder.n_blocks, len(encoder.blocks)) == (3, 3)
    assert (encoder.is_causal, encoder.width) == (False, 8)
    assert not any(name.startswith("blocks") for name in encoder.state_dict())
    assert torch.equal(
        encoder.model.embeddings.word_embeddings.weight, encoder.embeddings.word_embeddings.weight
    )
