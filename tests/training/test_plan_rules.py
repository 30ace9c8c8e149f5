"""Options that would change nothing where what trains is known, and those that do."""

import pytest

TASK = ("task=rte", "metric=[]")
TEXT = ("task=text", "metric=[]", "objective=[simcse]", "objective.simcse.reads=[layer_1/mean]")


def freezing(option, *more):
    return (f"freezing={option}", *(f"freezing.{key}" for key in more))


@pytest.mark.parametrize(
    "overrides",
    [
        freezing("head_only"),
        freezing("first_n", "n_blocks=1"),
        freezing("first_n", "n_blocks=2"),
        freezing("last_n", "n_blocks=1"),
        freezing("bitfit"),
        freezing("layer_norm_only"),
        freezing("only", "patterns=[*.1.*.query.weight,*.0.*]"),
        ("peft=lora",),
        ("peft=ia3",),
    ],
)
def test_fresh_blocks_that_stay_random_are_refused(built, overrides):
    key = overrides[0].partition("=")[0]
    with pytest.raises(
        ValueError, match=rf"training\.reinit_blocks=2 .*, and within 12 .* steps {key} leaves"
    ):
        built(*TASK, "training.reinit_blocks=2", *overrides)


def test_fresh_blocks_above_what_is_read_are_refused(built):
    told = r"reinit_blocks=1 .* objectives that read nothing above layer_1, .* block 2 untrained"
    with pytest.raises(ValueError, match=told):
        built(*TEXT, "training.reinit_blocks=1")


@pytest.mark.parametrize(
    ("n", "overrides"),
    [
        (2, freezing("embeddings")),
        (2, (*freezing("gradual"), "trainer.max_epochs=2")),
        (2, freezing("gradual", "unit=step", "every=11")),  # block 1 in the last of 12 steps
        (1, freezing("gradual")),
        (2, (*freezing("gradual"), "trainer.max_epochs=0")),  # nothing trains, nothing is left out
        (2, (*freezing("gradual"), "+trainer.fast_dev_run=true")),
        (2, freezing("last_n", "n_blocks=2")),
        (1, freezing("first_n", "n_blocks=1")),
        (2, freezing("only", "patterns=[*.layer.*.weight]")),  # biases start at 0
        (0, freezing("head_only")),
    ],
)
def test_fresh_blocks_that_train(built, n, overrides):
    assert built(*TASK, f"training.reinit_blocks={n}", *overrides).plan


@pytest.mark.parametrize(
    ("overrides", "n_steps"),
    [
        (freezing("gradual"), 12),
        (freezing("gradual", "unit=step", "every=12"), 12),
        ((*freezing("gradual"), "trainer.max_epochs=5", "trainer.max_steps=9"), 9),
    ],
)
def test_fresh_blocks_whose_phase_is_never_reached_are_refused(built, overrides, n_steps):
    told = rf"reinit_blocks=2 .* within {n_steps} optimizer steps freezing .* block 1 untrained"
    with pytest.raises(ValueError, match=told):
        built(*TASK, "training.reinit_blocks=2", *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        freezing("last_n", "n_blocks=1"),
        freezing("first_n", "n_blocks=1"),
        freezing("only", "patterns=[*.layer.1.*.query.*]"),
        freezing("head_only"),
    ],
)
def test_a_decay_of_one_rate_is_warned_of(built, overrides):
    with pytest.warns(UserWarning, match=r"layer_decay=0\.5 changes nothing: .* below block 2"):
        built(*TASK, "training.layer_decay=0.5", *overrides)


COSINE = ("task=stsb", "task.form=bi", "pooling=mean", "metric=[]")
FACTOR = "training.head_lr_factor=10"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ((*COSINE, FACTOR), r"head_lr_factor=10.0 changes nothing.*task=stsb form=bi only"),
        ((*TEXT, FACTOR), r"head_lr_factor=10.0 changes nothing.*task=text form=bi only"),
        ((*TASK, "data.holdout=0.5"), r"holdout=0\.5 changes nothing without training\.select=ho"),
        ((*TASK, "data.n_dev=33"), r"data\.n_dev=33 changes nothing: there are 32 examples of dev"),
        ((*TASK, "training.refit_rows=9"), r"refit_rows=9 changes nothing without isotropy\.eval"),
    ],
)
def test_options_without_effect_are_warned_of(built, overrides, told):
    with pytest.warns(UserWarning, match=told):
        built(*overrides)
