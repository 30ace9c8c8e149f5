"""What statistics of evaluation are fitted on: queue, rows behind frozen layers, all of training.

N rows of a site.
"""

import pytest
import torch

from isotrain.training import layer_statistics
from tests.training.test_module import fit, validate

LAYER = ("isotropy=cluster_pca", "isotropy.n_clusters=2", "isotropy.n_components=1")
REFIT = (*LAYER, "isotropy.eval_stats=refit")
PROTECTED = ("isotropy=protect_labels", "isotropy.level=1.0", *LAYER[1:])
QUIET = ("metric=[isoscore]", "monitor.max_rows=64")


def spied(experiment):
    """The rows, and labels, of every `fit` of a layer with given rows, by site."""
    seen = {site: [] for site in experiment.module.model.sites}
    for site, layer in experiment.module.model.transforms.items():

        def note(rows=None, labels=None, *, site=site, original=layer.fit):
            seen[site].append((rows, labels))
            original(rows, *[labels] * (labels is not None))

        layer.fit = note
    return seen


def all_rows(experiment, site, frozen=(), n_batches=None):
    """Rows of a site and their labels, from a plain pass in evaluation mode over training.

    Layers at `frozen` are as they are; the others are in training mode, as before their fit.
    """
    model = experiment.module.model
    model.eval()
    for name, layer in model.transforms.items():
        layer.train(name not in frozen)
    found = []
    with torch.no_grad():
        for number, batch in enumerate(experiment.data.first_batches(None)):
            if number == n_batches:
                break
            rows = model(batch).site_embeddings[site]
            found.append((rows.before, rows.labels, rows.ids))
    model.train()
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def in_order(rows, *others):
    """Rows sorted by their content, for a comparison of clouds as sets."""
    order = sorted(range(len(rows)), key=lambda i: rows[i].tolist())
    return [x[order] for x in (rows, *others)]


# --- refit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", ["pooled", "tokens", "layer_1"])
def test_refit_is_on_every_training_row_in_evaluation_mode(built, site):
    experiment = built("task=rte", *REFIT, *QUIET, f"site=[{site}]", "isotropy.queue_rows=8")
    expected, _, ids = all_rows(experiment, site)
    seen = spied(experiment)
    validate(experiment)
    ((rows, labels),) = seen[site]
    assert labels is None  # this layer does not read them
    assert len(rows) == len(ids.unique()) == len(expected)
    assert len(rows) == 96 if site == "pooled" else len(rows) > 96
    torch.testing.assert_close(*in_order(rows), *in_order(expected), atol=1e-5, rtol=1e-5)


def test_the_frozen_statistics_are_those_of_an_offline_fit(built):
    """With one cluster nothing is drawn: mean and direction of all 96 rows."""
    options = ("isotropy.n_clusters=1", "isotropy.queue_rows=8")
    experiment = built("task=rte", *REFIT, *QUIET, *options)
    rows = all_rows(experiment, "pooled")[0]
    validate(experiment)
    layer = experiment.module.model.transforms["pooled"]
    torch.testing.assert_close(layer.centre_KD[0], rows.mean(dim=0), atol=1e-5, rtol=1e-5)
    value, vector = torch.linalg.eigh(torch.cov(rows.double().T))
    overlap = (vector[:, -1].float() @ layer.direction_KDR[0, :, 0]).abs()
    assert value[-1] > 1.2 * value[-2]
    assert float(overlap) == pytest.approx(1.0, abs=1e-3)
    queue = layer.queue.rows()
    assert len(queue) == 8
    assert float((layer.centre_KD[0] - queue.mean(dim=0)).norm()) > 1e-3


@pytest.mark.parametrize("most", [2, 95, 500])
def test_at_most_refit_rows_always_the_same_ones(built, most):
    overrides = ("task=rte", *REFIT, *QUIET, f"training.refit_rows={most}", "isotropy.n_clusters=1")
    experiment = built(*overrides)
    seen = spied(experiment)
    validate(experiment)
    validate(experiment)
    (first, _), (again, _) = seen["pooled"]
    assert len(first) == min(most, 96)
    assert torch.equal(first, again)
    other = built(*overrides, "data.batch_size=32")
    rows = spied(other)
    validate(other)
    chosen = rows["pooled"][0][0]
    torch.testing.assert_close(*in_order(chosen), *in_order(first), atol=1e-5, rtol=1e-5)


# --- several sites ----------------------------------------------------------------------------


@pytest.mark.parametrize("eval_stats", ["frozen", "refit"])
def test_a_later_site_is_fitted_behind_the_frozen_earlier_ones(built, eval_stats):
    experiment = built(
        "task=rte",
        *LAYER,
        *QUIET,
        "pooling=mean",
        "site=[pooled,layer_1,tokens]",
        f"isotropy.eval_stats={eval_stats}",
        "training.prefill_batches=3",
    )
    model = experiment.module.model
    assert model.sites == ["layer_1", "tokens", "pooled"]
    seen = spied(experiment)
    validate(experiment)
    assert [len(fits) for fits in seen.values()] == [1, 1, 1]
    n_batches = None if eval_stats == "refit" else 3
    for number, site in enumerate(model.sites):
        rows = seen[site][0][0]
        if number == 0 and eval_stats == "frozen":
            assert rows is None  # its queue
            continue
        expected = all_rows(experiment, site, model.sites[:number], n_batches)[0]
        torch.testing.assert_close(*in_order(rows), *in_order(expected), atol=1e-4, rtol=1e-4)
        thawed = all_rows(experiment, site, (), n_batches)[0]
        if number:
            assert float((thawed.mean(dim=0) - expected.mean(dim=0)).norm()) > 1e-3


# --- modes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("eval_stats", ["frozen", "refit"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("prefill", [True, False])
def test_every_mode_comes_back(built, eval_stats, training, prefill):
    experiment = built("task=rte", *LAYER, f"isotropy.eval_stats={eval_stats}")
    model = experiment.module.model.train(training)
    model.encoder.embeddings.eval()
    model.head.train()
    layer = model.transforms["pooled"]
    layer.observe(torch.randn(8, 16))
    modes = [module.training for module in model.modules()]
    weights = [p.clone() for p in model.parameters()]
    seen = []

    def passes(n_batches):
        for batch in experiment.data.first_batches(n_batches):
            seen.append({name for name, m in model.named_modules() if m.training})
            assert not torch.is_grad_enabled()
            yield batch, model(batch)

    layer_statistics.fit_layers(model, passes, 3, 50, prefill)
    assert [module.training for module in model.modules()] == modes
    assert len(seen) == 3 * prefill + 12 * (eval_stats == "refit")
    of_layer = {"transforms", "transforms.pooled", "transforms.pooled.queue"}
    assert all(names == of_layer for names in seen)
    assert int(layer.queue.n_filled) == 8 + 24 * prefill
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))


# --- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("eval_stats", ["frozen", "refit"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_layer_that_reads_labels_gets_those_of_its_rows(built, eval_stats, pooling):
    """By the row number of the data set, in training, in the queue and in the fit."""
    overrides = (f"isotropy.eval_stats={eval_stats}",)
    more = ("trainer.max_steps=3", "data.batch_size=20", "data.n_dev=8")
    experiment = built("task=wic", *PROTECTED, *QUIET, *overrides, *more, f"pooling={pooling}")
    gold = torch.tensor([e.label for e in experiment.data.examples["train"]])
    model = experiment.module.model
    layer = model.transforms["pooled"]
    offline, labels, ids = all_rows(experiment, "pooled")
    assert torch.equal(labels.float(), gold[ids >> 20].float())
    assert 0 < labels.sum() < 96
    seen, passed, observed = spied(experiment), [], []
    layer.register_forward_pre_hook(
        lambda m, a: passed.append((m.training, len(a), a[1] if len(a) > 1 else None))
    )
    validate(experiment)
    assert {n for training, n, _ in passed if not training} == {1}
    if eval_stats == "refit":
        ((rows, known),) = seen["pooled"]
    else:
        rows, known = layer.queue.rows(), layer.queue.labels()
        assert 0 < len(rows) < 96 * 2
    nearest = (rows[:, None] - offline).square().sum(dim=2).argmin(dim=1)
    torch.testing.assert_close(rows, offline[nearest], atol=1e-5, rtol=1e-5)
    assert torch.equal(known.float(), labels[nearest].float())

    step, observe, given, expected = experiment.module.training_step, layer.observe, [], []

    def training_step(batch, batch_idx):
        passed.clear()
        loss = step(batch, batch_idx)
        ((_, _, labels),) = passed
        given.append(labels.float())
        expected.append(gold[batch.index].float())
        return loss

    def observed_rows(rows, labels):
        observed.append(labels.float())
        observe(rows, labels)

    experiment.module.training_step, layer.observe = training_step, observed_rows
    fit(experiment)
    assert len(given) == len(observed) == 3
    for found in (given, observed):
        assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


# --- the start --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task",
    [
        ("task=stsb", "task.form=bi", "pooling=mean"),
        ("task=wic", "training.head_lr_factor=100"),
        (
            *("task=wic", "training.head_lr_factor=100", "objective=[gor]"),
            *("objective.gor.weight=0.3", "training.objective_weight_as=share_of_task_gradient"),
        ),
    ],
    ids=["stsb", "wic", "wic-gor"],
)
def test_a_mean_subtracted_from_the_start_is_another_bias_of_the_last_layer_norm(built, task):
    """The same training, and the same scored embeddings."""
    line = (*task, "trainer.precision=64-true", *QUIET)
    layer = ("isotropy=mean", "isotropy.stats=start", "isotropy.eval_stats=refit")
    behind = built(*line, *layer, "trainer.max_steps=8")
    fit(behind)
    shift = behind.module.model.transforms["pooled"].eval()(torch.zeros(1, 16).double())[0]
    assert float(shift.norm()) > 0.1
    folded = built(*line, "trainer.max_steps=8")
    bias = folded.module.model.encoder.blocks[-1].output.LayerNorm.bias
    bias.data += shift.detach()
    fit(folded)
    bias.data -= shift.detach()
    ends = [part.module.model.encoder.state_dict() for part in (behind, folded)]
    for name, one in ends[0].items():
        torch.testing.assert_close(ends[1][name], one, rtol=1e-6, atol=1e-9)
