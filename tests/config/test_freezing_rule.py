"""The keys of what trains, against each other."""

from __future__ import annotations

import pytest

from isotrain.config.compose import compose_run
from tests.judge import all_mistakes

BASE = ("encoder=tiny", "source=demo")


def mistakes(*overrides):
    return all_mistakes(compose_run([*BASE, *overrides]))


@pytest.mark.parametrize(
    "overrides",
    [
        ("peft=lora",),
        ("peft=ia3", "training.frozen_dropout=false", "training.layer_decay=0.9"),
        ("freezing=gradual", "freezing.unit=step", "training.layer_decay=0.5"),
        ("freezing=head_only", "training.frozen_dropout=false"),
        ("freezing=only", "freezing.patterns=[*.bias,*.LayerNorm.*]"),
        ("training.layer_decay=0.95", "training.reinit_blocks=2"),
        (
            "peft=lora",
            "peft.target_modules=[query]",
            "peft.r=4",
            "peft.alpha=8",
            "peft.dropout=0.1",
        ),
    ],
)
def test_what_goes_together(overrides):
    assert mistakes(*overrides) == []


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("training.layer_decay=0",), "training.layer_decay must be above 0, got 0.0"),
        (("training.layer_decay=1.1",), "training.layer_decay must be at most 1, got 1.1"),
        (("training.layer_decay=nan",), "training.layer_decay must be above 0, got nan"),
        (("training.reinit_blocks=-1",), "training.reinit_blocks must be at least 0, got -1"),
        (("freezing=first_n", "peft=lora"), "peft trains its adapters and freezes the rest"),
        (("freezing=only", "freezing.patterns=bias"), "write 'freezing.patterns=[bias]'"),
        (("freezing=only", "freezing.patterns=[1]"), "freezing.patterns must be a list of str"),
        (("freezing=gradual", "freezing.every=0"), "freezing.every must be at least 1, got 0"),
        (("freezing=gradual", "freezing.unit=batch"), "freezing.unit must be epoch or step"),
        (("freezing=first_n", "freezing.n_blocks=-1"), "freezing.n_blocks must be at least 0"),
        (("freezing=last_n", "freezing.n_blocks=0"), "freezing.n_blocks must be at least 1"),
        (("freezing=last_n", "+freezing.steps_per_epoch=3"), "is set by isotrain itself"),
        (("peft=lora", "peft.r=0"), "peft.r must be at least 1, got 0"),
        (("peft=lora", "peft.alpha=0"), "peft.alpha must be above 0, got 0"),
        (("peft=lora", "peft.dropout=1.0"), "peft.dropout must be below 1, got 1.0"),
        (("peft=lora", "peft.target_modules=query"), "write 'peft.target_modules=[query]'"),
        (("peft=lora", "peft.target_modules=[1]"), "peft.target_modules must be a list of str"),
        (("encoder.dropout=1",), "encoder.dropout must be below 1, got 1"),
        (("peft=lora", "+peft.rank=4"), "peft.rank is no argument"),
        (("~peft",), "peft"),
    ],
)
def test_what_does_not(overrides, told):
    assert any(told in mistake for mistake in mistakes(*overrides))
