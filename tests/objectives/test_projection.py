"""What contrastive losses share: one read point, a projection, a memory; and a run with them."""

import pytest
import torch

from isotrain.objectives.projection import Projected, build_projection, one_read_point


@pytest.mark.parametrize("reads", [[], ["pooled", "before"], ["all/cls"], "pooled"])
def test_one_read_point_refuses_several_clouds(reads):
    with pytest.raises(ValueError, match="reads must name one read point"):
        one_read_point(reads)


@pytest.mark.parametrize("reads", [["pooled"], ("layer_2/tokens",)])
def test_one_read_point_gives_back_what_it_is(reads):
    assert one_read_point(reads) is reads


def test_a_read_point_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="got 'poled'"):
        one_read_point(["poled"])


def test_the_projection_is_a_linear_layer_and_tanh():
    projection = build_projection("mlp", 64)
    linear = projection[0]
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(projection(x), torch.tanh(x @ linear.weight.T))  # no bias yet
    assert linear.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert build_projection("none", 64)(x) is x
    assert list(build_projection("none", 64).parameters()) == []


class Mean(Projected):
    """The least that a contrastive loss adds."""

    def forward(self, views, labels):
        return self.project(views[0][0]).mean()


def test_rows_come_in_any_leading_shape_and_leave_wide():
    shared = Mean(1.0, 4, ["pooled"], "mlp", 0).bfloat16()
    x = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    rows = shared.project(x)
    assert rows.shape == (6, 4)
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows, shared.project(x.reshape(6, 4)))
    assert Mean(1.0, 4, ["pooled"], "none", 0).project(x.double()).dtype == torch.float64


def test_the_memory_is_there_when_asked_for():
    x = torch.ones(3, 4, dtype=torch.float64)
    without = Mean(1.0, 4, ["pooled"], "none", 0)
    assert without.memory is None
    assert without.past(x).shape == (0, 4)
    held = Mean(1.0, 4, ["pooled"], "none", 8, has_labels=True)
    held.memory.push(torch.ones(3, 4), labels_N=torch.arange(3))
    assert held.memory.labels().tolist() == [0, 1, 2]
    assert held.past(x).shape == (3, 4)
    assert held.past(x).dtype == torch.float64
    assert set(held.state_dict()) >= {"memory.rows_MD", "memory._extra_state"}
    with pytest.raises(ValueError, match="capacity must be at least 2, got 1"):
        Mean(1.0, 4, ["pooled"], "none", 1)


def test_a_run_trains_the_projection_and_fills_the_memory(built):
    names = ("simcse", "cosent", "angle")
    overrides = [f"objective.{n}.weight=0.1" for n in names]
    overrides += ["objective.simcse.projection=mlp", "objective.simcse.memory_rows=32"]
    experiment = built(
        "task=stsb", "task.form=bi", "trainer.max_steps=2", "metric=[mean_cosine]",
        "monitor.headline=[mean_cosine]", f"objective=[{','.join(names)}]", *overrides,
    )  # fmt: skip
    simcse = experiment.module.extra.objectives["simcse"]
    before = simcse.projection[0].weight.detach().clone()
    assert experiment.module.extra.n_views == 2
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert not torch.equal(simcse.projection[0].weight, before)
    assert len(simcse.memory.rows()) == 32  # two steps of eight examples of two vectors
    logged = experiment.trainer.callback_metrics
    assert all(bool(torch.isfinite(logged[f"train/{name}"])) for name in names)
    assert logged["train/simcse"] > 0
