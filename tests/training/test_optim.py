"""Parameter groups and counts."""

from __future__ import annotations

import torch
from torch import nn

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
