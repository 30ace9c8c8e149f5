"""FineTuning under a real Trainer: what is observed, when, what trains, and what is stored."""

from contextlib import contextmanager

import pytest
import torch
from pytorch_lightning.loggers import Logger
from torch import nn

from isotrain.objectives.base import Objective
from isotrain.training.loggers.jsonl import scores_of
from isotrain.training.monitor.callback import RunMonitor
from tests.stopped_runs import differing

LAYER = ("isotropy=cluster_pca", "isotropy.n_clusters=2", "isotropy.queue_rows=64")
# No evaluation inside fit, so that what is seen comes from training.
TRAIN_ONLY = ("task=rte", "+trainer.limit_val_batches=0")


class Records(Logger):
    """Keeps the records of a run."""

    name = version = "records"

    def __init__(self):
        super().__init__()
        self.records = []

    def log_hyperparams(self, *_, **__):
        pass

    def log_metrics(self, metrics, step=None):
        self.records.append(dict(metrics))


def fit(experiment):
    """The records of its training steps."""
    log = Records()
    experiment.trainer.loggers = [log]
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    return [record for record in log.records if "train/loss" in record]


def validate(experiment):
    """One evaluation by the run's own trainer; what it logged, and what the monitor measured."""
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    scores = scores_of(experiment.trainer, ("val/",))
    monitors = [c for c in experiment.trainer.callbacks if isinstance(c, RunMonitor)]
    return scores | (monitors[0].newest if monitors else {})


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


@contextmanager
def observations(model):
    """The embeddings of every `observe`, in order."""
    seen, observe = [], model.observe

    def record():
        kept = model.recent.tensors.items()
        seen.append({site: torch.cat([before for before, *_ in parts]) for site, parts in kept})
        observe()

    model.observe = record
    yield seen
    del model.observe


@pytest.mark.parametrize(
    ("accumulate", "batch_size", "rows_per_step"),
    [
        (1, 20, [20, 20, 20, 20, 16]),
        # The last step of an epoch comes with what there is.
        (2, 20, [40, 40, 16]),
        (2, 24, [48, 48]),
        (10, 20, [96]),
    ],
)
def test_observe_once_per_optimizer_step_with_every_row(
    built, accumulate, batch_size, rows_per_step
):
    experiment = built(
        *TRAIN_ONLY,
        *LAYER,
        f"data.batch_size={batch_size}",
        "data.batching=random",  # the part of a batch comes last
        f"trainer.accumulate_grad_batches={accumulate}",
    )
    model = experiment.module.model
    with observations(model) as seen:
        fit(experiment)
    assert experiment.trainer.global_step == len(rows_per_step)
    assert [len(rows["pooled"]) for rows in seen] == rows_per_step
    assert model.recent.tensors == {}


@pytest.mark.parametrize(
    ("accumulate", "limit", "windows"),
    [(4, 1.0, (4, 1, 4, 1)), (3, 4, (3, 1, 3, 1)), (2, 1.0, (2, 2, 1, 2, 2)), (9, 1.0, (5, 5))],
)
def test_a_step_has_the_mean_gradient_and_loss_of_its_micro_batches(
    built, accumulate, limit, windows
):
    """Nothing learns, so the gradients of the micro-batches are those of steps of one each."""

    def steps_of(accumulate, n_steps):
        experiment = built(
            *TRAIN_ONLY,
            *("encoder.dropout=0", "task.head_dropout=0", "optimizer.lr=0", "data.batch_size=20"),
            *("objective=[cosreg]", "trainer.log_every_n_steps=1"),
            *(
                f"+trainer.limit_train_batches={limit}",
                f"trainer.accumulate_grad_batches={accumulate}",
            ),
            *("trainer.max_epochs=2", f"trainer.max_steps={n_steps}"),
        )
        module, gradients = experiment.module, []
        module.on_before_optimizer_step = lambda _: gradients.append(
            torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
        )
        return [
            torch.cat([gradient, torch.tensor([record["train/loss"], record["train/cosreg"]])])
            for gradient, record in zip(gradients, fit(experiment), strict=True)
        ]

    ones = torch.stack(steps_of(1, sum(windows))).split(windows)
    for found, one in zip(steps_of(accumulate, len(windows)), ones, strict=True):
        torch.testing.assert_close(found, one.mean(dim=0), rtol=1e-4, atol=1e-6)


def test_evaluating_more_often_does_not_change_training(built):
    """With equal clouds to fit, the weights depend on steps alone."""

    def weights(*overrides):
        experiment = built("task=rte", "trainer.max_steps=6", *overrides)
        validate(experiment)
        fit(experiment)
        return state(experiment.module)

    assert differing(weights(), weights("trainer.val_check_interval=2")) == []


def test_the_queue_is_full_of_training_rows_before_step_0(built):
    experiment = built("task=rte", *LAYER, "training.prefill_batches=3")
    layer = experiment.module.model.transforms["pooled"]
    assert int(layer.queue.n_filled) == 0
    before = {n: p.clone() for n, p in experiment.module.named_parameters()}
    with observations(experiment.module.model) as seen:
        validate(experiment)
    assert [len(rows["pooled"]) for rows in seen] == [8, 8, 8]
    assert int(layer.queue.n_filled) == 24
    assert bool(layer.is_fitted)
    # By the encoder as it is: without dropout, unchanged, and with its mode given back.
    assert all(torch.equal(p, before[n]) for n, p in experiment.module.named_parameters())
    batches = [b for b, _ in zip(experiment.data.train_dataloader(), range(3), strict=False)]
    model = experiment.module.model.eval()
    rows = torch.cat([model(batch).site_embeddings["pooled"][0] for batch in batches])
    torch.testing.assert_close(layer.queue.rows(), rows)
    validate(experiment)  # a second evaluation at step 0 adds nothing
    assert int(layer.queue.n_filled) == 24


def test_a_module_that_is_fitted_again_observes_and_trains_from_its_first_step(built):
    module = built(*TRAIN_ONLY, *LAYER, "trainer.max_steps=4").module
    first, second = (built(*TRAIN_ONLY, *LAYER, f"trainer.max_steps={n}") for n in (4, 2))
    first.trainer.fit(module, datamodule=first.data)
    module.eval()  # as from_run gives it
    modes = []
    with observations(module.model) as seen:
        module.on_after_backward = lambda: modes.append(module.training)
        second.trainer.fit(module, datamodule=second.data)
    assert len(seen) == 2
    assert modes == [True, True]


def test_an_evaluation_of_a_loaded_checkpoint_adds_no_rows(built):
    trained, loaded = (built("task=rte", *LAYER, "trainer.max_steps=3") for _ in range(2))
    fit(trained)
    loaded.module.load_state_dict(trained.module.state_dict())
    loaded.module.on_load_checkpoint({"global_step": 3})
    rows = trained.module.model.transforms["pooled"].queue.rows()
    validate(loaded)
    assert torch.equal(loaded.module.model.transforms["pooled"].queue.rows(), rows)


def test_gradients_are_clipped_by_value_under_bf16(built):
    experiment = built(
        *(*TRAIN_ONLY, "trainer.precision=bf16-mixed", "trainer.max_steps=1"),
        *("+trainer.gradient_clip_algorithm=value", "trainer.gradient_clip_val=1e-6"),
    )
    clip, largest = experiment.module.configure_gradient_clipping, []

    def clipped(*arguments, **options):
        clip(*arguments, **options)
        weights = experiment.module.parameters()
        largest.append(max(float(p.grad.abs().max()) for p in weights if p.grad is not None))

    experiment.module.configure_gradient_clipping = clipped
    fit(experiment)
    assert largest == [pytest.approx(1e-6)]


def test_the_rate_of_the_encoder_and_the_norm_before_clipping_are_logged(built):
    experiment = built(
        *TRAIN_ONLY,
        *("training.head_lr_factor=10", "training.layer_decay=0.5", "trainer.max_steps=1"),
        *("trainer.gradient_clip_val=0.001", "trainer.log_every_n_steps=1", "schedule=constant"),
    )
    seen = []
    experiment.module.on_before_optimizer_step = lambda _: seen.append(
        torch.nn.utils.get_total_norm(
            [p.grad for p in experiment.module.parameters() if p.grad is not None]
        )
    )
    (logged,) = fit(experiment)
    assert logged["optim/gradient_norm"] == pytest.approx(float(seen[0]))
    assert seen[0] > 0.001
    assert logged["optim/learning_rate"] == pytest.approx(1e-3)


def test_views_are_separate_passes(built):
    experiment = built(*TRAIN_ONLY, "trainer.max_steps=1")
    seen = []

    class TwoViews(Objective):
        n_views = 2

        def forward(self, views, labels):
            seen.append([pooled for (pooled,) in views])
            return (views[0][0] - views[1][0]).square().mean()

    experiment.module.extra.objectives["two"] = TwoViews(1.0)
    experiment.module.step.n_views = 2
    fit(experiment)
    ((one, two),) = seen
    assert one.shape == two.shape
    assert not torch.equal(one, two)  # another dropout


def test_an_objective_is_shown_training_rows_in_evaluation_mode_at_the_start_of_an_epoch(built):
    experiment = built(*TRAIN_ONLY, "trainer.max_epochs=2", "+trainer.limit_train_batches=1")
    module, shown, before, after = experiment.module, [], {}, {}

    class Asks(Objective):
        def forward(self, views, labels):
            return views[0][0].sum()

        def asks_for_pass(self, epoch):
            before[epoch] = torch.get_rng_state()
            return True

        def prepare(self, epoch, reads):
            modes = {part.training for part in module.model.modules()}
            shown.append((epoch, modes, sum(len(pooled) for (pooled,) in reads)))
            after[epoch] = torch.get_rng_state()

    module.extra.objectives["asks"] = Asks(0.0)
    fit(experiment)
    n_rows = experiment.data.n_rows["train"]
    assert shown == [(0, {False}, n_rows), (1, {False}, n_rows)]
    for epoch in (0, 1):
        assert torch.equal(before[epoch], after[epoch]), "no dropout is drawn"


# Batches too small for statistics. Each trains, evaluates, and says in its counters what happened.

HARD = ("task=rte", "isotropy=cluster_pca", "trainer.max_steps=4", "trainer.log_every_n_steps=1")
BATCH = ("isotropy.stats=batch", "isotropy.eval_stats=batch")


def run_hard(built, *overrides, dropout=True, examples=None):
    """Logged values by key, all of them finite, of a run with an evaluation before and after."""
    built.unchecked()
    experiment = built(*HARD, *overrides)
    if examples is not None:
        experiment.data.examples = {s: examples(e) for s, e in experiment.data.examples.items()}
    if not dropout:
        for module in experiment.module.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
    first = validate(experiment)
    train = fit(experiment)[-1]
    last = validate(experiment)
    assert all(torch.isfinite(p).all() for p in experiment.module.parameters())
    assert all(torch.isfinite(b).all() for b in experiment.module.buffers())
    for found in (first, train, last):
        assert {k: v for k, v in found.items() if not torch.isfinite(torch.tensor(v))} == {}
    return train, last


@pytest.mark.parametrize("site", ["pooled", "tokens"])
def test_one_row_a_batch_by_batch_statistics(built, site):
    train, last = run_hard(
        built,
        *BATCH,
        "data.batch_size=1",
        "data.eval_batch_size=1",
        f"site=[{site}]",
    )
    if site == "pooled":
        assert train["train/pooled/rows_passed_through"] == 1
        assert last["val/pooled/rows_passed_through"] == 32  # each of the 32 rows of dev
        assert last["isotropy/isoscore/pooled/before"] == last["isotropy/isoscore/pooled/after"]
    else:
        assert train["train/tokens/rows_passed_through"] == 0


def test_equal_rows(built):
    from dataclasses import replace

    def same(examples):
        return [
            replace(
                e,
                input_ids=examples[0].input_ids,
                token_type_ids=examples[0].token_type_ids,
                special_mask=examples[0].special_mask,
            )
            for e in examples
        ]

    train, last = run_hard(built, *BATCH, dropout=False, examples=same)
    assert train["train/pooled/rows_passed_through"] == 8
    assert last["val/pooled/rows_passed_through"] == 32
    assert last["isotropy/isoscore/pooled/after"] == 0


def test_counters_are_logged_from_the_device_of_the_module(built):
    """A backend of accelerators alone (NCCL) cannot sum what stands on the CPU."""
    module = built("task=rte", *LAYER).module
    layer = module.model.transforms["pooled"]
    layer.counters = {"rows_borrowed": torch.tensor(1.0)}
    assert module._counters("val")["val/pooled/rows_borrowed"].device.type == "cpu"
    module._device = torch.device("meta")
    (counter,) = module._counters("val").values()
    assert counter.device.type == "meta"


def test_a_step_reads_no_row_numbers_from_the_device(built, monkeypatch):
    experiment = built(*TRAIN_ONLY, "trainer.max_steps=2", "trainer.accumulate_grad_batches=2")
    seen, step = [], experiment.module.training_step

    class Unread(torch.Tensor):
        def tolist(self):
            raise AssertionError("the row numbers of a batch were read")

    def training_step(batch, batch_idx):
        batch.index = batch.index.as_subclass(Unread)
        loss = step(batch, batch_idx)
        seen.append(
            [len(part) for part in [m.examples for m in experiment.module.guard.micro_batches]]
        )
        return loss

    experiment.module.training_step = training_step
    fit(experiment)
    assert seen == [[8], [8, 8]] * 2
