"""Parameter groups and counts."""

import torch
from torch import nn

from isotrain.encoders.adapters import ia3
from isotrain.encoders.tiny import build_tiny
from isotrain.training.optim import count_parameters, parameter_groups


def net():
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.LayerNorm(3))


def names(groups, module):
    by_id = {id(p): name for name, p in module.named_parameters()}
    return [[by_id[id(p)] for p in group["params"]] for group in groups]


def test_vectors_do_not_decay_and_matrices_take_the_optimizers_own():
    module = net()
    groups = parameter_groups(module)
    assert names(groups, module) == [
        ["0.weight", "1.weight"],
        ["1.bias", "2.weight", "2.bias"],
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]


def test_frozen_parameters_are_in_no_group():
    module = net()
    module[1].requires_grad_(False)
    assert names(parameter_groups(module), module) == [["0.weight"], ["2.weight", "2.bias"]]
    module[0].requires_grad_(False)
    assert names(parameter_groups(module), module) == [["2.weight", "2.bias"]]
    module.requires_grad_(False)
    assert parameter_groups(module) == []


def test_a_shared_parameter_counts_once():
    module = net()
    module.append(module[1])
    n = 5 * 4 + 4 * 3 + 3 + 3 + 3
    assert count_parameters(module) == {"total": n, "trainable": n}
    assert sum(len(group["params"]) for group in parameter_groups(module)) == 5
    module[1].requires_grad_(False)
    assert count_parameters(module) == {"total": n, "trainable": n - 15}


class Whole(nn.Module):
    """An encoder and a head, as in a run."""

    def __init__(self):
        super().__init__()
        self.encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
        self.head = nn.Linear(8, 2)


def rates(groups, module):
    """The share of the learning rate of every parameter that is in a group, each in one."""
    name_of = {id(p): name for name, p in module.named_parameters()}
    found = [(name_of[id(p)], g["lr_factor"]) for g in groups for p in g["params"]]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_each_block_learns_slower_than_the_one_above():
    module = Whole()
    groups = parameter_groups(module, module.encoder, layer_decay=0.5, head_lr_factor=10.0)
    expected = {"embeddings": 0.5**3, "layer.0.": 0.5**2, "layer.1.": 0.5, "layer.2.": 1.0}
    found = rates(groups, module)
    assert len(found) == len(list(module.parameters()))
    for name, rate in found.items():
        if name.startswith("head."):
            assert rate == 10.0
        else:
            (part,) = (part for part in expected if part in name)
            assert rate == expected[part], name
    decayed = [name for g in groups if "weight_decay" not in g for name in names([g], module)[0]]
    assert all(module.get_parameter(name).ndim == 2 for name in decayed)
    assert len(groups) == 2 * (3 + 1) + 2
    assert [g["is_head"] for g in groups] == [False] * 8 + [True] * 2


def test_without_decay_the_groups_are_four():
    module = Whole()
    groups = parameter_groups(module, module.encoder)
    assert [(g["is_head"], g["lr_factor"], g.get("weight_decay")) for g in groups] == [
        (False, 1.0, None),
        (False, 1.0, 0.0),
        (True, 1.0, None),
        (True, 1.0, 0.0),
    ]
    # in the order of the module, on which sums over parameters depend
    order = {id(p): number for number, p in enumerate(module.parameters())}
    for group in groups:
        numbers = [order[id(p)] for p in group["params"]]
        assert numbers == sorted(numbers)


def test_what_is_behind_the_last_block_counts_with_it():
    class Normed(type(build_tiny(8, 1, 1))):
        def forward(self, batch, after_block):
            output = super().forward(batch, after_block)
            return output._replace(last=self.norm(output.last))

    module = Whole()
    module.encoder.__class__ = Normed
    module.encoder.norm = nn.LayerNorm(8)
    found = rates(parameter_groups(module, module.encoder, layer_decay=0.5), module)
    assert found["encoder.norm.weight"] == 1.0


def test_scales_that_start_at_one_do_not_decay():
    module = Whole()
    ia3(module.encoder)
    (scales, *of_head) = parameter_groups(module, module.encoder)
    assert all(".ia3_l." in name for name in names([scales], module)[0])
    assert scales["weight_decay"] == 0.0
    assert [g["is_head"] for g in of_head] == [True, True]
