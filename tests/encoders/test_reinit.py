"""Fresh weights for the top blocks: exactly those, as the architecture draws them, by the seed."""

import math

import pytest
import torch

from isotrain.encoders.start import reinit_blocks
from isotrain.encoders.tiny import build_tiny


def state(encoder):
    return {name: value.clone() for name, value in encoder.state_dict().items()}


def changed(encoder, before):
    return {name for name, value in encoder.state_dict().items() if not value.equal(before[name])}


def disturb(encoder):
    """Every parameter off its initial value, also those that an initialiser sets to 0 or 1."""
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.rand_like(parameter) + 0.5)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_exactly_the_top_blocks_change(encoder, n):
    disturb(encoder)
    before = state(encoder)
    reinit_blocks(encoder, n)
    top = encoder.blocks[len(encoder.blocks) - n :]
    inside = {id(p) for block in top for p in block.parameters()}
    expected = {name for name, p in encoder.named_parameters() if id(p) in inside}
    assert changed(encoder, before) == expected
    assert bool(expected) == (n > 0)
    assert all(p.requires_grad for p in encoder.parameters())
    assert all(module.training for module in encoder.modules())


def test_the_values_are_those_of_the_architecture(encoder, family):
    """0.02 everywhere; GPT-2 divides what is added to the residual stream by √(2L)."""
    disturb(encoder)
    torch.manual_seed(3)
    reinit_blocks(encoder, 2)
    for block in encoder.blocks:
        for name, parameter in block.named_parameters():
            value = parameter.detach()
            kind = type(block.get_submodule(name.rpartition(".")[0])).__name__
            if name.endswith("bias"):
                assert torch.count_nonzero(value) == 0, name
            elif kind == "LayerNorm":
                assert torch.all(value == 1), name
            else:
                residual = family == "gpt2" and name.endswith("c_proj.weight")
                sd = 0.02 / math.sqrt(2 * 2) if residual else 0.02
                error = 1 / math.sqrt(2 * value.numel())  # of a standard deviation, relative
                assert abs(float(value.std()) / sd - 1) < 4 * error, name
                assert abs(float(value.mean())) < 4 * sd / math.sqrt(value.numel()), name


def test_the_seed_decides():
    def drawn(seed):
        torch.manual_seed(0)
        encoder = build_tiny(width=8, n_blocks=2, n_heads=1)
        torch.manual_seed(seed)
        reinit_blocks(encoder, 1)
        return encoder.state_dict()

    one, same, other = drawn(1), drawn(1), drawn(2)
    name = "model.encoder.layer.1.attention.self.query.weight"
    assert all(one[key].equal(same[key]) for key in one)
    assert not one[name].equal(other[name])


def test_the_head_and_the_blocks_below_start_as_without(built):
    plain = built("task=rte", "metric=[]").module.state_dict()
    fresh = built("task=rte", "metric=[]", "training.reinit_blocks=1").module.state_dict()
    differing = {name for name in plain if not plain[name].equal(fresh[name])}
    assert differing
    assert all(".encoder.layer.1." in name for name in differing)
    with pytest.raises(ValueError, match=r"training\.reinit_blocks must lie in 0 to 2"):
        built("task=rte", "metric=[]", "training.reinit_blocks=3")
