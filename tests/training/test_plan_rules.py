"""Weights that would stay at random values, and those that train."""

import pytest

TASK = ("task=rte", "metric=[]")
TEXT = ("task=text", "metric=[]", "objective=[simcse]", "objective.simcse.reads=[layer_1/mean]")


def freezing(option, *more):
    return (f"freezing={option}", *(f"freezing.{key}" for key in more))


FRESH = (*TASK, "training.reinit_blocks=2")
UNTRAINED = (
    r"training\.reinit_blocks=2 .*, and within {} optimizer steps {} leaves weights of block {}"
)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        *(
            ((*FRESH, *own), UNTRAINED.format(12, own[0].partition("=")[0], "[12]"))
            for own in (
                freezing("last_n", "n_blocks=1"),
                freezing("only", "patterns=[*.1.*.query.weight,*.0.*]"),
                ("peft=lora",),
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
    ],
)
def test_what_would_stay_untrained_is_rejected(built, overrides, message):
    with pytest.raises(ValueError, match=message):
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
