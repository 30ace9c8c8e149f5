"""Options that would change nothing where what trains is known, and those that do."""

import pytest

TASK = ("task=rte", "metric=[]")
TEXT = ("task=text", "metric=[]", "objective=[simcse]", "objective.simcse.reads=[layer_1/mean]")
COSINE = ("task=stsb", "task.form=bi", "pooling=mean", "metric=[]")


def freezing(option, *more):
    return (f"freezing={option}", *(f"freezing.{key}" for key in more))


FRESH = (*TASK, "training.reinit_blocks=2")
UNTRAINED = (
    r"training\.reinit_blocks=2 .*, and within {} optimizer steps {} leaves weights of block {}"
)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        *(
            ((*FRESH, *own), UNTRAINED.format(12, own[0].partition("=")[0], "[12]"))
            for own in (
                freezing("head_only"),
                freezing("first_n", "n_blocks=1"),
                freezing("first_n", "n_blocks=2"),
                freezing("last_n", "n_blocks=1"),
                freezing("bitfit"),
                freezing("layer_norm_only"),
                freezing("only", "patterns=[*.1.*.query.weight,*.0.*]"),
                ("peft=lora",),
                ("peft=ia3",),
            )
        ),
        # a stage that is never reached
        ((*FRESH, *freezing("gradual")), UNTRAINED.format(12, "freezing", "1 untrained")),
        (
            (*FRESH, *freezing("gradual", "unit=step", "every=12")),
            UNTRAINED.format(12, "freezing", "1 untrained"),
        ),
        (
            (*FRESH, *freezing("gradual"), "trainer.max_epochs=5", "trainer.max_steps=9"),
            UNTRAINED.format(9, "freezing", "1 untrained"),
        ),
        # what no loss reads
        (
            (*TEXT, "training.reinit_blocks=1"),
            r"reinit_blocks=1 .* objectives that read nothing above layer_1, .* block 2 untrained",
        ),
        (
            (*TEXT, *freezing("last_n", "n_blocks=1")),
            "nothing would train: .* that read a higher block",
        ),
        # a head without parameters
        ((*COSINE, *freezing("head_first")), "nothing would train: the head of task=stsb form=bi"),
        (
            (*COSINE, "training.solved_head=true"),
            r"solves a linear head, .*task=stsb form=bi is none",
        ),
    ],
)
def test_what_would_stay_untrained_is_refused(built, overrides, told):
    with pytest.raises(ValueError, match=told):
        built(*overrides)


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


FACTOR = "training.head_lr_factor=10"
SHARE = "training.objective_weight_as=share_of_task_gradient"
DECAY = "training.objective_weight_schedule=linear_decay"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        *(
            (
                (*TASK, "training.layer_decay=0.5", *own),
                r"layer_decay=0\.5 changes nothing: .* below block 2",
            )
            for own in (
                freezing("last_n", "n_blocks=1"),
                freezing("first_n", "n_blocks=1"),
                freezing("only", "patterns=[*.layer.1.*.query.*]"),
                freezing("head_only"),
            )
        ),
        ((*COSINE, FACTOR), r"head_lr_factor=10.0 changes nothing.*task=stsb form=bi only"),
        ((*TEXT, FACTOR), r"head_lr_factor=10.0 changes nothing.*task=text form=bi only"),
        ((*TASK, "data.holdout=0.5"), r"holdout=0\.5 changes nothing without training\.select=ho"),
        ((*TASK, "data.n_dev=33"), r"data\.n_dev=33 changes nothing: there are 32 examples of dev"),
        ((*TASK, "training.refit_rows=9"), r"refit_rows=9 changes nothing without isotropy\.eval"),
        ((*TASK, SHARE), f"{SHARE} .*changes nothing without an objective"),
        ((*TASK, DECAY), f"{DECAY} .*changes nothing without an objective"),
    ],
)
def test_options_without_effect_are_warned_of(built, overrides, told):
    with pytest.warns(UserWarning, match=told):
        built(*overrides)
