"""Which paths a run takes, why not the others, and that a run with them is a run."""

from __future__ import annotations

import pytest
import torch

from isotrain.encoders.fast_dropout import LaneDropout


@pytest.mark.parametrize(
    ("overrides", "path", "why"),
    [
        ((), "dropout", "taken"),
        ((), "last_block", "taken"),
        (("speed=exact",), "dropout", "switched off"),
        (("speed=exact",), "last_block", "switched off"),
        (("speed.last_block=false",), "last_block", "switched off"),
        (("encoder.dropout=0",), "dropout", "the encoder has no dropout"),
        (("pooling=mean",), "last_block", "the pooling reads all tokens"),
        (("isotropy=mean", "site=[tokens]"), "last_block", "site=tokens reads all tokens"),
        (("isotropy=mean", "site=[layer_2]"), "last_block", "site=layer_2 reads all tokens"),
        (("isotropy=mean", "site=[layer_1]"), "last_block", "taken"),
        (
            ("objective=[cosreg]", "objective.cosreg.reads=[all/tokens]"),
            "last_block",
            "objective=cosreg reads the last block",
        ),
        (("objective=[cosreg]",), "last_block", "taken"),
        ((), "packing", "data.batching=length pads little"),
        (("data.batching=random",), "packing", "taken"),
        (("monitor.every_steps=2",), "last_block", "monitor.every_steps reads all tokens"),
    ],
)
def test_a_run_says_which_paths_it_takes(built, overrides, path, why):
    experiment = built(*overrides)
    assert experiment.paths[path] == why
    model = experiment.module.model
    has_lanes = any(isinstance(part, LaneDropout) for part in model.encoder.modules())
    assert has_lanes == (experiment.paths["dropout"] == "taken")
    assert model.reads_all_tokens == (experiment.paths["last_block"] != "taken")


def test_losses_and_gradients_without_dropout_are_those_of_the_exact_step(built):
    losses, gradients = [], []
    for speed in ("fast", "exact"):
        step = ("encoder.dropout=0", "isotropy=mean", "data.batching=random")
        experiment = built(*step, f"speed={speed}")
        module = experiment.module.train()
        (batch,) = experiment.data.first_batches(1)
        output = module.model(batch)
        loss = module.task.loss(output.logits, batch.labels)
        loss.backward()
        losses.append(loss.detach())
        gradients.append({n: p.grad for n, p in module.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
