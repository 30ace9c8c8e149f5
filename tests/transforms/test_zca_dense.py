"""The trained Dense: starts as soft ZCA, is never fitted again, trains as a head's parameter."""

import copy

import pytest
import torch

from isotrain.encoders.trial import in_evaluation
from isotrain.plugins.fit_layers import FitLayersCallback
from isotrain.transforms.zca import ZCA
from isotrain.transforms.zca_dense import ZCADense
from tests.clouds import correlated

RUN = ("isotropy=zca_dense", "metric=[]", "cache_dir=null")


def cloud(n, seed=0):
    return correlated(n, 12, seed, 0.5, decay=0.8).double()


@pytest.mark.parametrize(("epsilon", "keep_scale"), [(0.0, True), (0.1, True), (0.5, False)])
def test_it_starts_as_soft_zca(epsilon, keep_scale):
    x, new = cloud(60), cloud(9, seed=1)
    layer = ZCADense(12, epsilon, keep_scale).double()
    with torch.no_grad():  # as the trainer collects embeddings
        assert torch.equal(layer(new), new)
    for training in (True, False):
        with pytest.raises(RuntimeError, match=r"call fit\(x\) first"):
            layer.train(training)(new)
    layer.fit(x)
    zca = ZCA(12, epsilon, keep_scale).double()
    zca.fit(x)
    for training in (True, False):
        torch.testing.assert_close(layer.train(training)(new), zca.eval()(new))


def test_fit_changes_nothing_after_the_start():
    layer = ZCADense(12).double()
    layer.fit()
    assert layer.needs_fit()
    layer.fit(cloud(60))
    started = copy.deepcopy(layer.state_dict())
    layer.observe(cloud(60, seed=2))
    layer.fit()
    assert not layer.needs_fit()
    assert all(torch.equal(value, started[name]) for name, value in layer.state_dict().items())


def test_a_cloud_without_scatter_starts_from_the_identity():
    layer = ZCADense(12).double()
    layer.fit(cloud(1).repeat(5, 1))
    assert torch.equal(layer(cloud(7)), cloud(7))


def test_weight_and_bias_have_the_gradient_of_an_affine_map():
    layer, linear = ZCADense(12).double(), torch.nn.Linear(12, 12).double()
    layer.fit(cloud(60))
    linear.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    for one in (layer, linear):
        one(cloud(20, seed=3)).pow(3).sum().backward()
    torch.testing.assert_close(layer.weight.grad, linear.weight.grad)
    torch.testing.assert_close(layer.bias.grad, linear.bias.grad)


def test_a_trainer_of_another_library_takes_it_once_it_has_started():
    layer = ZCADense(12)
    model, callback = torch.nn.Sequential(layer), FitLayersCallback()
    with pytest.raises(ValueError, match="stats='start', which needs a pass"):
        callback.on_train_begin(None, None, None, model)
    layer.fit(cloud(60).float())
    callback.on_train_begin(None, None, None, model)
    callback.on_train_end(None, None, None)


# Runs


def test_it_starts_before_step_0_and_trains_at_the_rate_of_the_head(built):
    line = ("task=wic", *RUN, "training.head_lr_factor=7", "training.warmup_fraction=0")
    experiment = built(*line, "schedule=constant", "trainer.max_steps=2")
    module, data = experiment.module, experiment.data
    layer = module.model.transforms["pooled"]
    experiment.trainer.validate(module, datamodule=data, verbose=False)
    started = {name: p.detach().clone() for name, p in layer.named_parameters()}
    with torch.no_grad(), in_evaluation(module.model):
        outputs = [output for _, output in module._passes(None)]
    before = torch.cat([output.site_embeddings["pooled"].before for output in outputs])
    zca = ZCA(16)
    zca.fit(before)
    torch.testing.assert_close(started["weight"], zca.matrix_DD.T, rtol=1e-4, atol=1e-4)
    experiment.trainer.fit(module, datamodule=data)
    assert all(not p.equal(started[name]) for name, p in layer.named_parameters())
    (optimizer,) = experiment.trainer.optimizers
    for name, p in layer.named_parameters():
        (group,) = (g for g in optimizer.param_groups if any(q is p for q in g["params"]))
        assert group["lr"] == pytest.approx(7e-3), name
        assert group["is_head"]
    trained = {name: p.detach().clone() for name, p in layer.named_parameters()}
    experiment.trainer.validate(module, datamodule=data, verbose=False)
    assert all(p.equal(trained[name]) for name, p in layer.named_parameters())
