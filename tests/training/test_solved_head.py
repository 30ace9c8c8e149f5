"""The solved head: against fits without each example, scikit-learn, and in runs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress
from sklearn.linear_model import Ridge as Reference
from torch.nn.functional import cross_entropy

from isotrain.encoders.trial import in_evaluation
from isotrain.model.heads import CosineHead, LinearHead, ScaledCosineHead, pair_features
from isotrain.training.solved_head import MOST, STRENGTHS, ridge, solve_head
from isotrain.training.temperature import best_factor

SOLVED = ("training.solved_head=true", "metric=[]", "cache_dir=null")


def problem(n, f, c, seed=0, noise=1.0):
    generator = torch.Generator().manual_seed(seed)
    scale_F = torch.logspace(0, -2, f)
    x_NF = torch.randn(n, f, generator=generator) * scale_F + 3.0
    weight_FC = torch.randn(f, c, generator=generator) / scale_F[:, None]
    y_NC = x_NF @ weight_FC + noise * torch.randn(n, c, generator=generator)
    return x_NF.double(), y_NC.double()


def reference(x_NF, y_NC, strength):
    centred = x_NF - x_NF.mean(dim=0)
    penalty = strength * float(centred.square().sum()) / x_NF.shape[1]
    return Reference(alpha=penalty).fit(x_NF.numpy(), y_NC.numpy())


@pytest.mark.parametrize(("n", "f"), [(40, 5), (12, 20), (9, 9)])
def test_it_is_the_ridge_of_the_smallest_error_of_left_out_examples(n, f):
    x, y = problem(n, f, 2, noise=2.0)
    found = ridge(x, y)
    errors = {}
    for strength in STRENGTHS:
        penalty = reference(x, y, strength).alpha  # the same for every fit
        left_out = [
            Reference(alpha=penalty)
            .fit(np.delete(x.numpy(), i, 0), np.delete(y.numpy(), i, 0))
            .predict(x[i : i + 1].numpy())[0]
            for i in range(n)
        ]
        errors[strength] = float(((y.numpy() - np.array(left_out)) ** 2).sum())
        if strength == found.strength:
            np.testing.assert_allclose(found.left_out_NC.numpy(), left_out, rtol=1e-6, atol=1e-7)
    assert min(errors, key=errors.__getitem__) == found.strength
    same = reference(x, y, found.strength)
    np.testing.assert_allclose(found.weight_CF.numpy(), same.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.bias_C.numpy(), same.intercept_, rtol=1e-6, atol=1e-8)


def test_noise_asks_for_strength_and_equal_features_for_the_mean():
    x, y = problem(60, 6, 1, noise=0.0)
    assert ridge(x, y).strength == STRENGTHS[0]
    noise = torch.randn(60, 1, generator=torch.Generator().manual_seed(1))
    assert ridge(x, noise).strength > 100 * STRENGTHS[0]
    found = ridge(torch.full((4, 3), 2.0), torch.tensor([[0.0], [0.0], [1.0], [1.0]]))
    assert found.weight_CF.abs().max() == 0
    assert float(found.bias_C) == 0.5


@given(st.integers(0, 10**6), st.integers(2, 4), st.floats(0.01, 50.0))
@settings(max_examples=30)
def test_no_factor_has_a_lower_cross_entropy(seed, c, size):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(c, (50,), generator=generator)
    logits = torch.randn(50, c, generator=generator).double() * size
    logits[torch.arange(50), labels] += size
    found = best_factor(logits, labels, 1.0, MOST)
    assert 1.0 <= found <= MOST
    best = float(cross_entropy(found * logits, labels))
    for other in torch.linspace(1.0, MOST, 200).tolist():
        assert best <= float(cross_entropy(other * logits, labels)) + 1e-9


class Output:
    def __init__(self, pooled):
        self.pooled = pooled


class Labelled:
    def __init__(self, index, labels):
        self.index, self.labels = index, labels


def test_scale_and_bias_of_a_cosine_are_those_of_least_squares():
    pooled = torch.randn(64, 2, 3, generator=torch.Generator().manual_seed(0))
    cosine = CosineHead()(pooled)[:, 0]
    labels = 0.3 * cosine + 0.5 + 0.1 * torch.randn(64, generator=torch.Generator().manual_seed(1))
    head = ScaledCosineHead()
    rows = torch.arange(64).split(10)
    solve_head(head, [(Labelled(i, labels[i]), Output(pooled[i])) for i in rows], most=10**4)
    expected = linregress(cosine.numpy(), labels.numpy())
    assert head.log_scale.exp().item() == pytest.approx(expected.slope, rel=1e-5)
    assert head.bias.item() == pytest.approx(expected.intercept, rel=1e-5)


@pytest.mark.parametrize("label", [-1.0, 0.0])
def test_a_cosine_that_does_not_rise_with_the_label_is_not_solved(label):
    pooled, i = torch.eye(2)[torch.tensor([[0, 0], [0, 1]])], torch.arange(2)
    rows = [(Labelled(i, torch.tensor([label, 0.0])), Output(pooled))]
    with pytest.raises(ValueError, match="solves a cosine's positive scale"):
        solve_head(ScaledCosineHead(), rows, most=10)


def test_a_head_of_a_pair_is_solved_on_the_features_of_the_pair():
    torch.manual_seed(0)
    pooled, labels = torch.randn(64, 2, 3), torch.arange(64) % 3
    order = torch.randperm(64)
    heads = [LinearHead(3, n_vectors=2, n_outputs=3) for _ in range(2)]
    for head, rows in zip(heads, (torch.arange(64), order), strict=True):
        parts = [(Labelled(i, labels[i]), Output(pooled[i])) for i in rows.split(10)]
        solve_head(head, iter(parts), most=10**4)
    assert torch.equal(heads[0].linear.weight, heads[1].linear.weight)  # whatever the batches
    same = ridge(pair_features(*pooled.unbind(dim=1)), torch.eye(3)[labels])
    ratio = heads[0].linear.weight.detach() / same.weight_CF
    torch.testing.assert_close(ratio, torch.full_like(ratio, float(ratio[0, 0])), rtol=1e-4, atol=0)


# Runs; see test_stopped_parts.py and test_processes.py too


@pytest.mark.parametrize("task", ["snli", "stsb", "wic"])
@pytest.mark.parametrize("layer", [("isotropy=none",), ("isotropy=zca",)])
def test_step_0_has_the_solution_behind_the_layer(built, task, layer):
    experiment = built(f"task={task}", *SOLVED, *layer, "encoder.dropout=0.1")
    module, data = experiment.module, experiment.data
    drawn = module.model.head.linear.weight.detach().clone()
    experiment.trainer.validate(module, datamodule=data, verbose=False)
    linear = module.model.head.linear
    assert not torch.equal(linear.weight, drawn)
    with in_evaluation(module.model), torch.no_grad():
        pairs = list(module._passes(None))
    x = torch.cat([output.pooled[:, 0] for _, output in pairs]).double()
    labels = torch.cat([batch.labels for batch, _ in pairs])
    n_outputs = len(linear.weight)
    y = labels[:, None] if n_outputs == 1 else torch.eye(n_outputs)[labels]
    found = ridge(x, y)
    same = reference(x, y.double(), found.strength)
    factor = 1.0 if n_outputs == 1 else best_factor(found.left_out_NC, labels, 1.0, MOST)
    np.testing.assert_allclose(
        linear.weight.detach().numpy(), factor * same.coef_.reshape(n_outputs, -1), rtol=1e-2,
        atol=1e-3 * factor * float(abs(same.coef_).max()),
    )  # fmt: skip
    before = linear.weight.detach().clone()
    experiment.trainer.validate(module, datamodule=data, verbose=False)
    assert torch.equal(linear.weight, before)  # once


def test_training_starts_from_it_without_an_evaluation_too(built):
    line = ("task=rte", *SOLVED, "+trainer.limit_val_batches=0", "trainer.max_steps=1")
    line = (*line, "optimizer.lr=0", "freezing=head_only")
    experiment = built(*line)
    drawn = experiment.module.model.head.linear.weight.detach().clone()
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert not torch.equal(experiment.module.model.head.linear.weight, drawn)


def test_step_0_of_a_scaled_cosine_has_the_smallest_squared_error(built):
    line = ("task=stsb", "task.form=bi", "pooling=mean", "task.scaled_cosine=true", *SOLVED)
    experiment = built(*line, "isotropy=mean")
    module, data = experiment.module, experiment.data
    experiment.trainer.validate(module, datamodule=data, verbose=False)
    with in_evaluation(module.model), torch.no_grad():
        pairs = list(module._passes(None))
    cosine = torch.cat([CosineHead()(output.pooled)[:, 0] for _, output in pairs])
    expected = linregress(cosine.numpy(), torch.cat([batch.labels for batch, _ in pairs]).numpy())
    assert module.model.head.log_scale.exp().item() == pytest.approx(expected.slope, rel=1e-3)
    assert module.model.head.bias.item() == pytest.approx(expected.intercept, rel=1e-3)
