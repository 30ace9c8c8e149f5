"""How high the losses look: what stands above is in no plan and no optimizer.

L = 2 blocks, so 3 = the norm and the layer at tokens, 4 = the layer at pooled, 5 = the head.
"""

from types import SimpleNamespace

import pytest

from isotrain.encoders.freezing import depths, up_to_depth
from isotrain.objectives.cosreg import CosReg
from isotrain.training.freezing_schedule import describe, highest_depth_read

TEXT = ("task=text", "metric=[]", "objective=[simcse]")
BLOCK_1 = (*TEXT, "objective.simcse.reads=[layer_1/mean]")
LAYERS = ("isotropy=batch_norm", "site=[layer_1,layer_2,tokens,pooled]")


@pytest.mark.parametrize(
    ("reads", "height"),
    [
        ([], -1),
        ([["layer_0/tokens"]], 0),
        ([["layer_1/cls"]], 1),
        ([["layer_1/cls", "layer_2/mean"]], 2),
        ([["layer_1/cls"], ["all/tokens"]], 2),
        ([["layer_1/cls"], ["before"]], 3),
        ([["before", "pooled"]], 4),
        ([None], 4),  # an objective that names none reads pooled
    ],
)
def test_the_highest_read(reads, height):
    objectives = {
        str(i): CosReg(1.0) if names is None else CosReg(1.0, names)
        for i, names in enumerate(reads)
    }
    assert highest_depth_read(SimpleNamespace(has_loss=False), objectives, 2) == height
    assert highest_depth_read(SimpleNamespace(has_loss=True), objectives, 2) == 5


def test_a_plan_up_to_level(built):
    encoder = built("task=rte", "metric=[]").module.model.encoder
    depth = depths(encoder)
    whole = {0: frozenset(n for n in depth if depth[n] == 2), 4: frozenset(depth)}
    assert up_to_depth(whole, encoder, 2) == whole
    assert up_to_depth(whole, encoder, 1) == {
        0: frozenset(),
        4: frozenset(n for n in depth if depth[n] < 2),
    }


@pytest.mark.parametrize(
    "reads", ["layer_0/tokens", "layer_1/mean", "layer_2/mean", "before", "pooled"]
)
def test_whatever_may_train_gets_a_gradient_and_nothing_else_does(built, reads):
    experiment = built(*TEXT, *LAYERS, f"objective.simcse.reads=[{reads}]")
    module = experiment.module.train()
    # The oracle: autograd, over all parameters.
    data, optimizer = experiment.data, module.new_optimizer()
    trains = {n for n, p in module.named_parameters() if p.requires_grad}
    module.requires_grad_(True)
    batch = next(iter(data.train_dataloader()))
    loss, _ = module.extra([module.model(batch) for _ in range(2)], batch)
    loss.backward()
    reached = {n for n, p in module.named_parameters() if p.grad is not None}
    assert trains == reached
    optimised = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert {n for n, p in module.named_parameters() if id(p) in optimised} == reached
    assert experiment.n_parameters["trainable"] == sum(
        p.numel() for n, p in module.named_parameters() if n in reached
    )


def test_a_run_leaves_what_no_loss_depends_on_as_it_was(built):
    experiment = built(*BLOCK_1, "trainer.max_steps=2", "+trainer.limit_val_batches=0")
    module = experiment.module
    (phase,) = describe(experiment.plan, module, module.model.encoder, module.new_optimizer())
    parts = {part for group in phase["groups"] for part in group["parts"]}
    assert parts == {"embeddings", "block 1"}
    before = {n: p.detach().clone() for n, p in module.model.encoder.named_parameters()}
    experiment.trainer.fit(module, datamodule=experiment.data)
    depth = depths(module.model.encoder)
    moved = {n for n, p in module.model.encoder.named_parameters() if not p.equal(before[n])}
    assert {depth[n] for n in moved} == {0, 1}


def test_an_objective_of_no_weight_is_not_what_a_loss_depends_on():
    objectives = {
        "of_weight": CosReg(-1.0, ["layer_1/cls"]),
        "of_none": CosReg(0.0, ["pooled"]),
    }
    assert highest_depth_read(SimpleNamespace(has_loss=False), objectives, 2) == 1
