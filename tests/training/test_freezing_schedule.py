"""Stages under a real Trainer: what trains at which step, at which rates, and after a kill."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.config.schema import training_steps
from isotrain.encoders.freezing import depths, stage_at, within_steps
from isotrain.training.freezing_schedule import Freezing, describe
from isotrain.training.optim import parameter_groups
from tests.parts import names
from tests.training.test_module import fit

# No evaluation, so that what is seen comes from training; and every step has a learning rate.
TRAIN_ONLY = (
    *("task=rte", "metric=[]", "+trainer.limit_val_batches=0", "training.warmup_fraction=0"),
    *("cache_dir=null", "data.batching=random"),
)
STEPS = ("freezing=gradual", "freezing.unit=step")
HEAD = {"model.head.linear.weight", "model.head.linear.bias"}


def bits(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def moved(module, before):
    return {name for name, p in module.named_parameters() if not p.equal(before[name])}


def on_steps(experiment, look):
    """Call `look(step)` after each optimizer step, with the number of those before it."""
    ended, last = experiment.module.on_train_batch_end, [0]

    def after(*arguments):
        ended(*arguments)
        if experiment.trainer.global_step > last[0]:
            look(last[0])
            last[0] = experiment.trainer.global_step

    experiment.module.on_train_batch_end = after


def in_encoder(names):
    return {f"model.encoder.{name}" for name in names}


def of_depth(module, *wanted):
    return in_encoder(n for n, k in depths(module.model.encoder).items() if k in wanted)


# Plans


@given(
    steps=st.sets(st.integers(1, 40), max_size=6), step=st.integers(0, 60), end=st.integers(0, 60)
)
@settings(max_examples=60)
def test_the_stage_of_a_step(steps, step, end):
    plan = {first: frozenset([str(first)]) for first in {0} | steps}
    newest = 0
    for n in range(step + 1):
        newest = n if n in plan else newest
    assert stage_at(plan, step) == {str(newest)}
    cut = within_steps(plan, end)
    assert set(cut) == {0} | {first for first in plan if first < end}
    assert all(stage_at(cut, n) == stage_at(plan, n) for n in range(end))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), (12, 12)),
        (("trainer.accumulate_grad_batches=5",), (3, 3)),
        (("trainer.accumulate_grad_batches=5", "trainer.max_epochs=3"), (3, 9)),
        (("trainer.max_epochs=3", "trainer.max_steps=20"), (12, 20)),
        (("trainer.max_epochs=-1", "trainer.max_steps=20"), (12, 20)),
        (("+trainer.limit_train_batches=5", "trainer.max_epochs=2"), (5, 10)),
        (("+trainer.limit_train_batches=0.4", "trainer.max_epochs=2"), (4, 8)),
        (("+trainer.limit_train_batches=50",), (12, 12)),
        (("trainer.max_epochs=0",), (12, 0)),
        (("+trainer.fast_dev_run=2", "trainer.max_epochs=3"), (2, 2)),
    ],
)
def test_steps_are_those_that_lightning_makes(built, composed, small, overrides, expected):
    experiment = built(*TRAIN_ONLY, *overrides)
    trainer = experiment.trainer
    given = composed(*small, *TRAIN_ONLY, *overrides).trainer
    assert training_steps(given, experiment.data.n_batches(1)) == expected
    fit(experiment)
    assert trainer.global_step == expected[1]


def test_epochs_of_several_processes_begin_where_the_phases_do(built):
    """96 rows in batches of 19 leave one, too few for two processes: 5 batches, and not 6."""
    several = ("trainer.max_epochs=3", "trainer.devices=2", "data.batch_size=19")
    experiment = built(*TRAIN_ONLY, *several, "freezing=gradual", "freezing.unit=epoch")
    data, trainer = experiment.data, experiment.trainer
    assert (data.n_batches(1), data.n_batches(2)) == (6, 5)
    data.trainer = trainer  # as the trainer does it, in every process
    a_run = sum(1 for _ in data.train_dataloader())
    assert (trainer.world_size, len(data.train_dataloader()), a_run) == (2, 5, 5)
    assert list(experiment.plan) == [0, 5, 10]


# Training


@pytest.mark.parametrize(
    ("group", "option"),
    [(g, o) for g in ("freezing", "peft") for o in names(g) if o != "head_first"],  # own test
)
def test_what_is_frozen_stays_bit_for_bit_and_the_rest_moves(built, group, option):
    """Every file of conf/freezing and conf/peft, two steps."""
    more = ("freezing.n_blocks=1",) if option == "first_n" else ()
    experiment = built(*TRAIN_ONLY, f"{group}={option}", *more, "trainer.max_steps=2")
    module, plan = experiment.module, experiment.plan
    before = bits(module)
    named = dict(module.model.encoder.named_parameters())
    fit(experiment)
    (optimizer,) = experiment.trainer.optimizers
    optimised = {id(p) for g in optimizer.param_groups for p in g["params"]}
    assert set(plan) == {0}  # an epoch is longer than two steps
    trained = {id(p) for name, p in named.items() if name in plan[0]}
    head = {id(p) for p in module.model.head.parameters()}
    assert optimised == trained | head
    assert {n for n, p in named.items() if p.requires_grad} == plan[0]
    assert moved(module, before) == in_encoder(plan[0]) | HEAD
    n_trained = sum(p.numel() for p in module.parameters() if id(p) in optimised)
    assert experiment.n_parameters["trainable"] == n_trained
    if option != "none":
        assert n_trained < experiment.n_parameters["total"]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradual_by_steps_across_accumulation(built, accumulate):
    """Blocks of two steps: block 2; blocks 1 and 2; all. Those that wait have no state."""
    experiment = built(
        *TRAIN_ONLY,
        *(*STEPS, "freezing.every=2", f"trainer.accumulate_grad_batches={accumulate}"),
        f"+trainer.limit_train_batches={6 * accumulate}",
    )
    module = experiment.module
    newest, seen, states = bits(module), [], []
    names = {id(p): name for name, p in module.named_parameters()}

    def look(step):
        seen.append(moved(module, newest))
        newest.update(bits(module))
        (optimizer,) = experiment.trainer.optimizers
        states.append({names[id(p)] for p in optimizer.state})

    on_steps(experiment, look)
    fit(experiment)
    expected = [of_depth(module, *range(2 - step // 2, 4)) | HEAD for step in range(6)]
    assert seen == states == expected


def test_what_freezes_again_stands_still(built):
    """No freezing here does that, but one of the user's may: momentum must not move it."""
    experiment = built(*TRAIN_ONLY, "trainer.max_steps=6", "optimizer.weight_decay=0.5")
    module = experiment.module
    everything = experiment.plan[0]
    (freezing,) = (c for c in experiment.trainer.callbacks if isinstance(c, Freezing))
    freezing.plan = {0: everything, 2: frozenset(), 4: everything}
    newest, seen = bits(module), []

    def look(step):
        seen.append(moved(module, newest))
        newest.update(bits(module))

    on_steps(experiment, look)
    fit(experiment)
    assert [names == HEAD for names in seen] == [False, False, True, True, False, False]
    assert all(names > HEAD for names in (seen[0], seen[5]))


def test_rates_by_block_through_the_schedule(built):
    experiment = built(
        *TRAIN_ONLY,
        *("training.layer_decay=0.5", "training.head_lr_factor=10", "optimizer.lr=1e-3"),
        *("training.warmup_fraction=0.5", "trainer.max_steps=10", "objective=[cosreg]"),
    )
    module = experiment.module
    names = {id(p): name for name, p in module.named_parameters()}
    rates = []
    module.on_before_optimizer_step = lambda o: rates.append(
        {names[id(p)]: g["lr"] for g in o.param_groups for p in g["params"]}
    )
    fit(experiment)
    factors = {name: 10.0 for name in names.values()}
    for depth, factor in {0: 0.25, 1: 0.5, 2: 1.0}.items():
        factors |= dict.fromkeys(of_depth(module, depth), factor)
    schedule = [0, 2, 4, 6, 8, 10, 8, 6, 4, 2]
    for share, found in zip(schedule, rates, strict=True):
        assert found == pytest.approx({n: 1e-4 * share * f for n, f in factors.items()})


# The report of the stages


def test_the_report_is_what_the_optimizer_does(built):
    experiment = built(
        "task=rte", "metric=[]", *STEPS, "training.layer_decay=0.5", "training.head_lr_factor=4"
    )
    module = experiment.module
    phases = describe(experiment.plan, module, module.model.encoder, module.new_optimizer())
    assert [phase["from_step"] for phase in phases] == [0, 1, 2]
    sizes = {n: p.numel() for n, p in module.named_parameters()}
    for number, phase in enumerate(phases):
        trained = {n for n in sizes if n.startswith("model.head.")}
        trained |= of_depth(module, *range(2 - number, 4))
        assert phase["n_parameters"] == sum(sizes[n] for n in trained)
        rates = {part: g["lr"] for g in phase["groups"] for part in g["parts"]}
        all_rates = {"embeddings": 2.5e-4, "block 1": 5e-4, "block 2": 1e-3, "head": 4e-3}
        shown = list(all_rates)[2 - number :]
        assert rates == pytest.approx({part: all_rates[part] for part in shown})
        assert list(rates) == shown
        assert {g["weight_decay"] for g in phase["groups"]} == {0.0, 0.01}


def test_layers_and_objectives_with_weights_are_named(built):
    experiment = built("task=rte", "metric=[]", "isotropy=batch_norm")
    module = experiment.module
    module.extra.parts["x"] = torch.nn.Linear(2, 2)
    (phase,) = describe(experiment.plan, module, module.model.encoder, module.new_optimizer())
    parts = [part for group in phase["groups"] for part in group["parts"]]
    of_run = {"head", "isotropy layers", "objectives"}
    assert set(parts) == {"embeddings", "block 1", "block 2"} | of_run
    groups = parameter_groups(module, module.model.encoder)
    assert sum(len(g["params"]) for g in groups if g["is_head"]) == 2 + 2 + 2


# Dropout of what is frozen


@pytest.mark.parametrize("frozen_dropout", [True, False])
def test_dropout_of_frozen_parts(built, frozen_dropout):
    """Two passes give equal states where dropout is off, also after evaluations."""
    experiment = built(
        *("task=rte", "metric=[]", "cache_dir=null", "trainer.val_check_interval=3"),
        *(*STEPS, "freezing.every=4", f"training.frozen_dropout={frozen_dropout}"),
    )
    module, equal = experiment.module, {}

    def look(batch, batch_idx):
        step = experiment.trainer.global_step
        with torch.no_grad():
            one, two = (module.model(batch).hidden_states for _ in range(2))
        equal[step] = [a.equal(b) for a, b in zip(one, two, strict=True)]
        return step_itself(batch, batch_idx)

    step_itself, module.training_step = module.training_step, look
    fit(experiment)
    assert experiment.trainer.num_val_batches != [0]
    for step, found in equal.items():
        n_frozen = 0 if frozen_dropout else (2, 1, 0)[step // 4]  # states 0 to L
        assert found == [depth < n_frozen for depth in range(3)], step
    assert len(equal) == 12


def test_the_head_trains_first_and_then_everything(built):
    """As LP-FT: the first fifth of 12 steps, with the parameters of a layer."""
    line = ("freezing=head_first", "isotropy=batch_norm", "trainer.max_epochs=1")
    experiment = built(*TRAIN_ONLY, *line)
    module, seen = experiment.module, []
    start = bits(module)
    on_steps(experiment, lambda step: seen.append(moved(module, start)))
    fit(experiment)
    outside = {n for n in start if not n.startswith("model.encoder.")}
    assert any("transforms" in name for name in outside)
    assert seen[0] == seen[1] == outside
    assert len(seen) == 12
    assert {k for n, k in depths(module.model.encoder).items() if in_encoder([n]) & seen[2]} == {
        *(0, 1, 2),
    }
