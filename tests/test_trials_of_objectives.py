"""Objectives against the data, the freezing and the dropout of a run: refused before training."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from isotrain.encoders.freezing import freeze_encoder, train_last_n, unfreeze_gradually
from isotrain.encoders.tiny import build_tiny
from isotrain.objectives.alignment import Alignment
from isotrain.objectives.cosreg import CosReg
from isotrain.objectives.simcse import SimCSE
from isotrain.objectives.supcon import SupCon
from isotrain.training.checks import (
    check_gradients,
    check_labels,
    check_memories,
    check_views,
)
from isotrain.transforms.batch_norm import BatchNorm
from isotrain.types import Example


def data(*labels, n_sequences=2, n_tokens=3):
    """Training examples of these labels."""
    examples = [
        Example([[0] * n_tokens] * n_sequences, [], [], None, float(label), i)
        for i, label in enumerate(labels)
    ]
    task = SimpleNamespace(name="mine", n_sequences=n_sequences)
    return SimpleNamespace(examples={"train": examples, "dev": []}, task=task)


@pytest.mark.parametrize("kind", [Alignment, lambda **more: SimCSE(width=4, **more)])
def test_an_interval_that_holds_no_label_is_refused_with_the_range_of_labels(kind):
    def objective(*interval):
        return {"mine": kind(weight=1.0, positives="pair", positive_labels=list(interval))}

    scores = data(0.0, 0.25, 1.0)
    check_labels(objective(0.2, 0.3), scores)
    check_labels(objective(1, 1), scores)
    for interval in ((4, 5), (0.3, 0.9)):
        with pytest.raises(ValueError, match=r"mine\.positive_labels=.* lie in \[0, 1\]"):
            check_labels(objective(*interval), scores)
    check_labels({"mine": kind(weight=1.0)}, scores)


@pytest.mark.parametrize(
    ("objective", "n_vectors", "n_rows"),
    [  # of three examples
        (lambda m: SimCSE(1.0, 4, memory_rows=m), 2, 6),
        (lambda m: SimCSE(1.0, 4, memory_rows=m, positives="pair"), 3, 6),
        (lambda m: SimCSE(1.0, 4, memory_rows=m, positives="pair", positive_labels=[1, 1]), 3, 4),
        (lambda m: SimCSE(1.0, 4, memory_rows=m, reads=["layer_1/mean"]), 1, 6),
        (lambda m: SimCSE(1.0, 4, memory_rows=m, reads=["layer_1/tokens"]), 1, 18),
        (lambda m: SupCon(1.0, 4, memory_rows=m, n_views=2), 1, 6),
    ],
)
def test_a_memory_that_reaches_back_an_epoch_is_refused(objective, n_vectors, n_rows):
    check_memories({"mine": objective(n_rows - 1)}, data(0, 1, 1), n_vectors)
    check_memories({"mine": objective(0)}, data(0, 1, 1), n_vectors)
    with pytest.raises(
        ValueError, match=rf"mine\.memory_rows .* {n_rows} embeddings .* got {n_rows}:"
    ):
        check_memories({"mine": objective(n_rows)}, data(0, 1, 1), n_vectors)


def test_two_views_need_dropout():
    two = {"mine": SimCSE(1.0, 8)}
    with_dropout, without = (
        build_tiny(width=8, n_blocks=1, n_heads=1, dropout=p) for p in (0.1, 0.0)
    )
    check_views(two, with_dropout)
    check_views({"mine": SimCSE(1.0, 8, positives="pair"), "other": CosReg(1.0)}, without)
    with pytest.raises(ValueError, match=r"none; .* objective\.mine\.positives=pair"):
        check_views(two, without)
    with pytest.raises(ValueError, match=r"objective\.mine\.n_views=1"):
        check_views({"mine": SupCon(1.0, 8, n_views=2)}, without)
    for part in without.modules():
        if isinstance(part, nn.Dropout):
            part.attention_dropout = 0.1  # as ModernBERT has it
    check_views(two, without)


def reading(*places):
    return {"mine": CosReg(1.0, reads=places)}


def refusal(objectives, plan, encoder, transforms=None, has_loss=True):
    model = SimpleNamespace(encoder=encoder, transforms=transforms or {})
    task = SimpleNamespace(name="mine", has_loss=has_loss)
    try:
        check_gradients(objectives, plan, model, task)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("places", "n_last", "refused"),
    [
        (["layer_1/mean"], 1, True),
        (["layer_0/mean"], 3, True),
        (["layer_2/mean"], 2, False),
        (["layer_1/mean", "layer_3/cls"], 1, False),
        (["all/tokens"], 1, False),
        (["pooled"], 1, False),
        (["before"], 1, False),
    ],
)
def test_what_reads_only_frozen_places_is_refused(places, n_last, refused):
    """And has a gradient, in the encoder itself, exactly where it is not refused."""
    encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    plan = train_last_n(encoder, 1, n_blocks=n_last)
    told = refusal(reading(*places), plan, encoder)
    assert (told is not None) == refused
    if told:
        assert told.startswith("objective=mine reads")
        assert "freezing" in told
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(name in plan[0])
    states = []
    hooks = [
        block.register_forward_hook(lambda *a: states.append(a[2])) for block in encoder.blocks
    ]
    embedded = encoder.embeddings(input_ids=torch.tensor([[1, 2]]))
    encoder.model(input_ids=torch.tensor([[1, 2]]))
    states = [embedded] + [s[0] if isinstance(s, tuple) else s for s in states]
    assert len(states) == 4, hooks
    read = {"layer": lambda text: [states[int(text[6])]], "all/t": lambda text: states[1:]}
    clouds = [c for text in places for c in read.get(text[:5], lambda _: states[-1:])(text)]
    assert any(cloud.requires_grad for cloud in clouds) != refused


def test_a_place_that_a_later_stage_reaches_is_enough_beside_a_loss_of_the_task():
    encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    plan = unfreeze_gradually(encoder, steps_per_epoch=5)
    assert refusal(reading("layer_1/mean"), plan, encoder) is None
    assert "in a stage" in refusal(reading("layer_1/mean"), plan, encoder, has_loss=False)
    assert refusal(reading("pooled"), plan, encoder, has_loss=False) is None


def test_an_isotropy_layer_that_learns_is_something_to_train():
    encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    plan = freeze_encoder(encoder, 1)
    layer = BatchNorm(8)
    for site, places in (("pooled", "pooled"), ("tokens", "before"), ("layer_1", "layer_2/mean")):
        assert refusal(reading(places), plan, encoder)
        assert refusal(reading(places), plan, encoder, {site: layer}) is None
    assert refusal(reading("before"), plan, encoder, {"pooled": layer})
    assert refusal(reading("layer_1/mean"), plan, encoder, {"layer_1": layer})
    assert refusal(reading("pooled"), plan, encoder, {"pooled": BatchNorm(8, affine=False)})


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ("wic pooling=spans objective=[cosent] objective.cosent.reads=[layer_1/mean]", "two vec"),
        (
            "nli_pairs task.hard_negatives=true objective=[vicreg] objective.vicreg.positives=pair",
            "objective=vicreg needs exactly two vectors .* give 3",
        ),
        ("rte objective=[spectral] objective.spectral.n_components=16", "below the width"),
        ("rte objective=[istar] objective.istar.reads=[layer_9/cls]", "objective=istar: "),
        ("text objective=[simcse] objective.simcse.memory_rows=4000", r"memory_rows must be below"),
        ("text objective=[simcse] encoder.dropout=0", "objective=simcse compares two"),
        (
            "text objective=[cosreg] objective.cosreg.reads=[layer_1/tokens] freezing=last_n "
            "freezing.n_blocks=1",
            "freezing",
        ),
    ],
)
def test_a_run_is_rejected_when_it_is_built(built, overrides, told):
    with pytest.raises(ValueError, match=told):
        built(*f"task={overrides}".split())


def test_supcon_of_a_block_beside_pooled_spans_trains(built):
    experiment = built(
        *("task=wic", "pooling=spans", "objective=[supcon]", "trainer.max_steps=1"),
        "objective.supcon.reads=[layer_1/cls]",
    )
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert experiment.trainer.global_step == 1
