"""Anchor: what it is given of the frozen start, in a run that trains."""

import pytest
import torch

from isotrain.objectives.anchor import Anchor, anchor
from isotrain.objectives.cosreg import CosReg
from isotrain.plugins.sentence_losses import SentenceLoss
from isotrain.training.losses import read_points
from tests.clouds import normal
from tests.processes import train_on_ranks
from tests.stopped_runs import finished

BOTH = ["pooled", "layer_1/tokens"]
ZEROS = torch.zeros(8)
RUN = ("task=rte", "task.form=bi", "pooling=mean", "metric=[]", "objective=[anchor]")


@pytest.mark.parametrize("distance", ["cosine", "squared"])
@pytest.mark.parametrize("centred", [False, True])
def test_options_reach_the_loss_and_read_points_are_averaged(distance, centred):
    objective = Anchor(0.3, BOTH, distance, centred)
    (x, u), (y, v) = [(normal(8, 2, 4, seed=k), normal(11, 4, seed=k + 2)) for k in (0, 1)]
    pooled = anchor(x.flatten(0, 1), y.flatten(0, 1), distance, centred)
    expected = (pooled + anchor(u, v, distance, centred)) / 2
    assert objective([[x, u], [y, v]], ZEROS).item() == pytest.approx(expected.item(), abs=1e-12)
    assert objective.counters["undefined"] == 0
    assert (objective.weight, objective.n_views, objective.needs) == (0.3, 1, "rows")


def test_one_embedding_or_equal_ones_have_no_centred_direction():
    objective, x = Anchor(1.0, centred=True), normal(1, 4).repeat(5, 1).requires_grad_()
    for few in (x, x[:1]):
        loss = objective([[few], [normal(len(few), 4, seed=1)]], ZEROS)
        loss.backward()
        assert (loss.item(), objective.counters["undefined"].item()) == (0.0, 1.0)
    assert not x.grad.any()
    assert Anchor(1.0)([[x], [x]], ZEROS).item() == pytest.approx(0.0, abs=1e-12)


def test_raw_embeddings_hold_a_cone_in_place_and_centred_ones_let_it_go():
    cone = normal(64, 16) + 4.0
    without = cone - cone.mean(dim=0)
    assert anchor(without, cone).item() > 0.5
    assert anchor(without, cone, centred=True).item() == pytest.approx(0.0, abs=1e-12)


# In a run; one that is stopped is in tests/training/test_stopped_parts.py


def test_the_copy_of_the_start_stays_while_the_encoder_trains_and_is_in_nothing_that_is_stored(
    built,
):
    experiment = built(*RUN, "objective.anchor.weight=0", "trainer.max_steps=4")
    module, start = experiment.module, experiment.module.step.start
    before = {name: p.clone() for name, p in start.encoder.state_dict().items()}
    twin = dict(module.model.encoder.named_parameters())
    assert all(torch.equal(p, twin[name]) for name, p in start.encoder.named_parameters())
    own = {id(p) for p in start.encoder.parameters()}
    assert not own & {id(p) for p in module.parameters()}
    assert not any(p.requires_grad for p in start.encoder.parameters())
    assert not any(name.startswith(("extra.", "step.")) for name in module.state_dict())
    experiment.trainer.fit(module, datamodule=experiment.data)
    assert all(torch.equal(p, before[name]) for name, p in start.encoder.state_dict().items())
    assert any(not torch.equal(p, before[name]) for name, p in twin.items())
    assert built("objective=[cosreg]").module.step.start is None


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("pooling=cls",),  # whose training step leaves out tokens of the last block
        ("data.batching=random",),
        ("training.reinit_blocks=1",),
        ("freezing=first_n", "freezing.n_blocks=1"),
        ("isotropy=zca", "objective.anchor.reads=[before]"),
        ("isotropy=zca", "site=[layer_2]", "objective.anchor.reads=[layer_1/mean,layer_2/cls]"),
    ],
)
def test_without_dropout_the_loss_begins_at_0_and_its_embeddings_are_those_of_step_0(
    built, overrides
):
    experiment = built(*RUN, "encoder.dropout=0", "trainer.max_steps=4", *overrides)
    module, (batch,) = experiment.module, experiment.data.first_batches(1)
    points = module.extra.objectives["anchor"].read_points
    with torch.no_grad():
        output = module.train().model(batch)
        untrained = read_points(output, batch, points)
        start = module.step.start(batch, output.pooled)
        _, logged = module.extra([output], batch, start=start)
    assert float(logged["train/anchor"]) == pytest.approx(0.0, abs=1e-6)
    experiment.trainer.fit(module, datamodule=experiment.data)
    start = module.step.start(batch, output.pooled)
    found = read_points(start, batch, points)
    torch.testing.assert_close(found, untrained, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        _, logged = module.extra([module.model(batch)], batch, start=start)
    assert float(logged["train/anchor"]) > 1e-6


def test_an_anchored_run_stays_nearer_to_its_start(composed, small, tmp_path):
    def drift(weight):
        options = (f"objective.anchor.weight={weight}", "encoder.dropout=0", "trainer.max_steps=12")
        cfg = composed(*small, *RUN, *options, f"output_dir={tmp_path}")
        rows = [row for row in finished(cfg)[1] if "train/anchor" in row]
        return rows[-1]["train/anchor"]

    assert drift(100.0) < 0.5 * drift(0.0)


def test_a_run_in_double_precision_has_its_start_in_it(small, tmp_path):
    line = (*small, *RUN, "trainer.precision=64-true", "trainer.max_steps=2", "threads=1")
    folder, printed = train_on_ranks(1, tmp_path, *line)
    assert (folder / "weights.safetensors").is_file(), printed


# What is rejected


@pytest.mark.parametrize(
    ("site", "reads", "fix"),
    [
        ("pooled", "pooled", "site=pooled lies below; read before"),
        ("tokens", "before,pooled", "site=tokens lies below; read a point below tokens"),
        ("layer_1", "layer_1/mean,layer_2/mean", "compares layer_2/mean .* a point below layer_1"),
    ],
)
def test_a_layer_below_is_rejected_and_one_above_is_not(built, site, reads, fix):
    given = (*RUN, "isotropy=zca", f"site=[{site},pooled]", f"objective.anchor.reads=[{reads}]")
    with pytest.raises(ValueError, match=rf"objective=anchor .*{fix}"):
        built(*(text.replace("pooled,pooled", "pooled") for text in given))
    built(*RUN, "isotropy=zca", "site=[layer_2]", "objective.anchor.reads=[layer_2/mean]")


def test_a_loss_of_sentence_transformers_has_no_start():
    with pytest.raises(ValueError, match="anchor compares with the encoder as it starts"):
        SentenceLoss(None, Anchor(1.0), CosReg(1.0))
