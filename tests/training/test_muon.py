"""Muon and AdamW in one optimizer: against each alone, in groups, runs, stops and processes."""

import copy

import torch
from torch import nn

from isotrain.encoders.adapters import ia3, lora
from isotrain.training.muon import MuonAdamW
from isotrain.training.optim import matrices_of_blocks, parameter_groups
from tests.stopped_runs import differing, finished
from tests.training.test_optim import Whole


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 4))


def optimizer_of(module, matrices, **options):
    return MuonAdamW(parameter_groups(module, matrices=matrices), **options)


def set_gradients(module, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_each_part_steps_as_it_does_alone():
    ours, alone = net(), net()
    optimizer = optimizer_of(
        *(ours, {id(ours[0].weight)}),
        **{"lr": 1e-2, "weight_decay": 0.1, "muon_lr": 3e-2, "muon_weight_decay": 0.2},
    )
    muon = torch.optim.Muon(
        *([alone[0].weight], 3e-2, 0.2), momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    others = parameter_groups(nn.ModuleList([nn.ParameterList([alone[0].bias]), *alone[1:]]))
    adamw = torch.optim.AdamW(others, lr=1e-2, weight_decay=0.1, fused=True)
    for seed in range(4):
        set_gradients(ours, seed)
        set_gradients(alone, seed)
        for one in (optimizer, muon, adamw):
            one.step()
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, alone.get_parameter(name)), name


def taken(module, **options):
    """Names that Muon takes, and the factors of their groups."""
    name_of = {id(p): name for name, p in module.named_parameters()}
    matrices = matrices_of_blocks(module.encoder)
    groups = parameter_groups(module, module.encoder, matrices=matrices, **options)
    assert sum(len(g["params"]) for g in groups) == sum(
        p.requires_grad for p in module.parameters()
    )
    muon = [g for g in groups if g.get("is_matrix")]
    return {name_of[id(p)]: g["lr_factor"] for g in muon for p in g["params"]}


def test_muon_takes_the_matrices_of_blocks_and_nothing_else():
    module = Whole()
    found = taken(module, layer_decay=0.5, head_lr_factor=10.0)
    expected = {
        name: 0.5 ** (2 - int(name.split(".layer.")[1][0]))
        for name, p in module.named_parameters()
        if ".layer." in name and p.ndim == 2
    }
    assert found == expected
    assert len(found) == 3 * 6  # query, key, value, output, and two of the feed-forward
    module.encoder.blocks[0].distances = nn.Embedding(3, 8)  # as with relative positions
    module.encoder.blocks[0].kernel = nn.Conv1d(2, 2, 1)
    assert taken(module, layer_decay=0.5) == expected


def test_of_adapters_it_takes_the_factors_of_lora_and_no_scales():
    with_lora, with_scales = Whole(), Whole()
    trained = lora(with_lora.encoder, r=2)
    assert taken(with_lora).keys() == {f"encoder.{name}" for name in trained}
    ia3(with_scales.encoder)
    assert taken(with_scales) == {}


def test_a_state_that_is_loaded_goes_on_bit_by_bit():
    ours = net()
    optimizer = optimizer_of(ours, {id(ours[0].weight)}, lr=1e-2)
    for seed in range(3):
        set_gradients(ours, seed)
        optimizer.step()
    again = copy.deepcopy(ours)
    other = optimizer_of(again, {id(again[0].weight)})
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for name, parameter in ours.named_parameters():
        one, two = optimizer.state[parameter], other.state[again.get_parameter(name)]
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)
        assert ("momentum_buffer" in one) == (name == "0.weight")
    for seed in range(3, 6):
        for module, one in ((ours, optimizer), (again, other)):
            set_gradients(module, seed)
            one.step()
    assert all(torch.equal(p, again.get_parameter(n)) for n, p in ours.named_parameters())
    ours[0].weight.grad, kept = None, ours[0].weight.detach().clone()
    optimizer.step()
    assert torch.equal(ours[0].weight, kept)  # no decay either, as with AdamW


def test_a_closure_is_called_once_and_its_loss_comes_back():
    ours = net()
    optimizer = optimizer_of(ours, {id(ours[0].weight)})
    x = torch.ones(3, 6)

    def closure():
        loss = ours(x).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    assert len(optimizer.state) == len(list(ours.parameters()))


# Runs; see test_stopped_parts.py and test_processes.py too


def test_without_a_matrix_it_is_adamw(composed, small, tmp_path):
    line = (*small, "task=rte", "metric=[]", "cache_dir=null", "freezing=bitfit")
    _, _, plain = finished(composed(*line, f"output_dir={tmp_path / 'adamw'}"))
    muon = composed(*line, "optimizer=muon", f"output_dir={tmp_path / 'muon'}")
    _, _, found = finished(muon)
    assert differing(plain, found) == []
