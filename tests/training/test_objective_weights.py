"""Weights of objectives: schedules, shares of the task gradient, and where they are measured."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.config.schema import WeightAs, WeightSchedule
from isotrain.model.distributed import n_processes, sum_over_processes
from isotrain.objectives.base import Objective
from isotrain.training.losses import MOMENTUM, ExtraLosses, ObjectiveWeights
from isotrain.types import ModelOutput
from tests.host_syncs import host_syncs
from tests.objectives.test_life import SIZES, Bag, batch_of, extra_of
from tests.processes import on_ranks
from tests.stopped_runs import finished

SHARE, KEY = WeightAs.share_of_task_gradient, "objective/{}/effective_weight"
SHARE_KEY = "training.objective_weight_as=share_of_task_gradient"


class Sum(Objective):
    """Its gradient at N pooled numbers is √N."""

    def forward(self, views, labels):
        return views[0][0].sum()


def shares(**weights):
    return ObjectiveWeights({name: Sum(weight) for name, weight in weights.items()}, SHARE)


def measured(weights, of_task, **of_own):
    """The weights at a point where the losses have these gradients."""
    pooled = torch.zeros(1, 1, 1, requires_grad=True)
    view = ModelOutput((), pooled, pooled[:, 0])
    losses = {name: (pooled * value).sum() for name, value in of_own.items()}
    found = weights(losses, [view], (pooled * of_task).sum(), 0)
    return {name: float(value) for name, value in found.items()}


# Schedules


def test_absolute_and_constant_are_the_weights_themselves_and_nothing_is_logged_or_stored():
    model, extra = Bag("cosreg"), extra_of("cosreg", "istar each")
    weights = extra.weights({}, [], None, 5)
    assert weights == {"cosreg": 1.0, "istar each": -2.0}
    assert not extra.weights.vary
    assert not extra.weights.state_dict()
    batch = batch_of(0, 4)
    total, logged = extra(model.views(extra, batch), batch)
    assert torch.equal(total, 0.0 + 1.0 * logged["train/cosreg"] - 2.0 * logged["train/istar each"])
    assert not [key for key in logged if key.startswith("objective/")]


@given(st.integers(1, 500), st.integers(0, 600))
@settings(max_examples=50)
def test_a_schedule_is_what_its_name_says(n_steps, step):
    def factor(schedule):
        return ObjectiveWeights({}, WeightAs.absolute, schedule, n_steps).scheduled(step)

    assert factor(WeightSchedule.constant) == 1.0
    decayed = factor(WeightSchedule.linear_decay)
    assert decayed == pytest.approx(max(0, n_steps - step) / n_steps, abs=1e-12)
    assert decayed >= 0


def test_a_run_follows_its_schedule_and_logs_it(composed, small, tmp_path):
    _, rows, _ = finished(
        composed(
            *(*small, "task=rte", "objective=[cosreg]", "objective.cosreg.weight=-0.5"),
            *("trainer.max_steps=4", "trainer.log_every_n_steps=1", "metric=[]"),
            *("training.warmup_fraction=0.5", f"output_dir={tmp_path}"),
            "training.objective_weight_schedule=linear_decay",
        )
    )
    rows = [row for row in rows if "train/loss" in row]
    found = [row[KEY.format("cosreg")] for row in rows]
    assert found == pytest.approx([-0.5 * factor for factor in (1.0, 0.75, 0.5, 0.25)], abs=1e-7)
    for row, weight in zip(rows, found, strict=True):
        whole = row["train/task_loss"] + weight * row["train/cosreg"]
        assert row["train/loss"] == pytest.approx(whole, abs=1e-6)


# Shares of the task's gradient


def test_the_scale_is_the_quotient_of_the_mean_norms():
    weights = shares(one=0.5, two=-3.0)
    norms = [(2.0, 4.0, 0.5), (6.0, 1.0, 0.25), (0.1, 7.0, 3.0)]
    for step, (of_task, *of_own) in enumerate(norms):
        found = measured(weights, of_task, one=of_own[0], two=of_own[1])
        for column, (name, weight) in enumerate((("one", 0.5), ("two", -3.0)), start=1):
            ages = [MOMENTUM ** (step - k) for k in range(step + 1)]
            tasks, own = (
                sum(age * row[c] for age, row in zip(ages, norms, strict=False))
                for c in (0, column)
            )
            assert found[name] == pytest.approx(weight * tasks / own, rel=1e-5)
        weights.observe()


@pytest.mark.parametrize(
    ("of_task", "of_own"), [(0.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, math.inf)]
)
def test_a_step_without_a_gradient_or_with_a_broken_one_leaves_the_scale(of_task, of_own):
    weights = shares(one=2.0, two=1.0)
    assert measured(weights, of_task, one=of_own, two=1.0)["one"] == 0.0, "none counted yet"
    weights.observe()
    before = measured(weights, 3.0, one=1.0, two=1.0)["one"]
    assert before == pytest.approx(6.0)
    weights.observe()
    assert measured(weights, of_task, one=of_own, two=1.0)["one"] == pytest.approx(before)
    weights.observe()
    assert measured(weights, 3.0, one=1.0, two=1.0)["one"] == pytest.approx(before)


def test_micro_batches_are_averaged_and_stored_once_the_step_is_made():
    weights, stored = shares(one=1.0), []
    measured(weights, 1.0, one=1.0)
    stored.append(weights.norms_O2.clone())
    assert measured(weights, 5.0, one=2.0)["one"] == pytest.approx(6.0 / 3.0)
    stored.append(weights.norms_O2.clone())
    assert not torch.stack(stored).any()
    weights.observe()
    weights.observe()  # nothing new
    mean = torch.tensor([[3.0, 1.5]]) * (1 - MOMENTUM)
    torch.testing.assert_close(weights.norms_O2, mean)
    resumed = shares(one=1.0)
    resumed.load_state_dict(weights.state_dict())
    assert measured(resumed, 0.3, one=4.0) == measured(weights, 0.3, one=4.0)


def test_weights_are_not_waited_for_on_a_gpu():
    weights = shares(one=1.0, two=0.5)
    pooled = torch.ones(2, 1, 3, requires_grad=True)
    view, losses = ModelOutput((), pooled, pooled[:, 0]), {"one": pooled.sum(), "two": pooled.sum()}
    with host_syncs() as found:
        weights(losses, [view], pooled.square().sum(), 0)
        weights.observe()
    assert not found


def before(output):
    return output.site_embeddings["pooled"].before


POINTS = [  # read points, where they are measured, and further overrides
    (["pooled"], lambda o: o.pooled, ()),
    (["pooled"], lambda o: o.pooled, ("isotropy=zca", "data.batching=random")),
    (["before"], before, ("isotropy=zca",)),
    (["before"], lambda o: o.pooled, ("isotropy=none",)),
    (["before", "pooled"], before, ("isotropy=zca",)),
    (["layer_0/tokens"], lambda o: o.hidden_states[0], ()),
    (["all/tokens"], lambda o: o.hidden_states[1], ("data.batching=random",)),
    (["pooled", "layer_1/mean"], lambda o: o.hidden_states[1], ("isotropy=zca", "site=[layer_1]")),
    (["layer_2/mean"], lambda o: o.hidden_states[2], ("data.batching=random",)),
    (["all/tokens"], lambda o: o.hidden_states[2], ("freezing=first_n", "freezing.n_blocks=1")),
]


@pytest.mark.parametrize(("reads", "point", "overrides"), POINTS)
def test_the_gradient_of_an_objective_has_its_share_of_that_of_the_task(
    built, reads, point, overrides
):
    experiment = built(
        *("task=rte", "task.form=bi", "pooling=mean", SHARE_KEY, *overrides),
        *("objective=[cosreg]", f"objective.cosreg.reads=[{','.join(reads)}]"),
        "objective.cosreg.weight=-0.3",
    )
    module = experiment.module.train()
    (batch,) = experiment.data.first_batches(1)
    output = module.model(batch)
    task_loss = module.task.loss(output.logits, batch.labels)
    total, logged = module.extra([output], batch, task_loss)
    x = point(output)
    of_own, of_task = (
        torch.autograd.grad(loss, x, retain_graph=True)[0].norm() for loss in (total, task_loss)
    )
    assert float(of_task) > 1e-6
    assert float(of_own / of_task) == pytest.approx(0.3, rel=1e-4)
    assert logged[KEY.format("cosreg")] < 0


def test_the_scale_has_no_gradient_and_leaves_that_of_the_losses(built):
    """One backward pass of the sum is that of the parts with the weights as numbers."""

    def gradients(is_share):
        experiment = built(
            *("task=rte", "encoder.dropout=0", "objective=[cosreg,sigreg]", "isotropy=zca"),
            *("objective.sigreg.reads=[all/tokens]", *([SHARE_KEY] if is_share else [])),
        )
        module, (batch,) = experiment.module.train(), experiment.data.first_batches(1)
        if not is_share:
            for name, objective in module.extra.objectives.items():
                objective.weight = float(effective[name])
        output = module.model(batch)
        task_loss = module.task.loss(output.logits, batch.labels)
        total, logged = module.extra([output], batch, task_loss)
        (task_loss + total).backward()
        found = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
        return found, {name: logged.get(KEY.format(name)) for name in module.extra.objectives}

    shared, effective = gradients(is_share=True)
    assert all(weight > 0 for weight in effective.values())
    torch.testing.assert_close(gradients(is_share=False)[0], shared, rtol=1e-5, atol=1e-7)


NAMES = ("cosreg", "istar each", "simcse")


def on_rank(rank):
    """Effective weights over three steps, each of the weights as they are."""
    model = Bag("cosreg").double()
    own = extra_of(*NAMES).double()
    extra = ExtraLosses(own.objectives, ObjectiveWeights(own.objectives, SHARE)).double()
    found = []
    for number, n in enumerate(SIZES):
        batch = batch_of(number, n, rank)
        views = model.views(extra, batch)
        n_own = torch.tensor(float(len(batch.labels)))
        share = n_own * n_processes() / sum_over_processes(n_own)
        task_loss = share * (views[0].logits.square().sum(dim=1) * (1 + batch.index)).mean()
        _, logged = extra(views, batch, task_loss, number)
        found.append([logged[KEY.format(name)] for name in NAMES])
        extra.observe()
    return torch.tensor(found), extra.weights.norms_O2


def test_two_processes_have_the_weights_of_one(tmp_path):
    one = on_rank(None)
    assert bool((one[0].abs() > 1e-6).all())
    for rank in on_ranks(on_rank, 2, tmp_path):
        torch.testing.assert_close(rank, one, rtol=1e-6, atol=1e-12)


# What a run may ask for


@pytest.mark.parametrize("objective", ["cosreg", "istar"])
def test_blocks_whose_gradients_are_measured_are_neither_packed_nor_compiled(
    built, monkeypatch, objective
):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **__: compiled.append(1))
    overrides = (f"objective=[{objective}]", "data.batching=random", "speed.compile=true")
    why = {"cosreg": "taken", "istar": "the gradient of objective=istar is measured at a block"}
    paths = built(*overrides, SHARE_KEY).paths
    assert (paths["packing"], paths["compile"]) == (why[objective],) * 2
    assert len(compiled) == (2 if objective == "cosreg" else 0)
    paths = built(*overrides).paths
    assert (paths["packing"], paths["compile"]) == ("taken", "taken")
