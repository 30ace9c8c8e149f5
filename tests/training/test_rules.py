"""Facts across built parts, against exact arithmetic and the gradients that parts get."""

import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from isotrain.encoders.freezing import freeze_encoder, train_last_n, unfreeze_gradually
from isotrain.encoders.tiny import build_tiny
from isotrain.geometry.cluster_pca import MIN_ROWS
from isotrain.objectives.alignment import Alignment
from isotrain.objectives.base import Objective
from isotrain.objectives.cosreg import CosReg
from isotrain.objectives.simcse import SimCSE
from isotrain.objectives.supcon import SupCon
from isotrain.tasks.wic import WiC
from isotrain.training import rules
from isotrain.training.data import TaskData
from isotrain.training.rules import Parts
from isotrain.transforms.batch_norm import BatchNorm
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.standardize import Standardize
from isotrain.transforms.zca import ZCA
from isotrain.types import Example
from tests.parts import WITHOUT_LOSS

TASK = ("metric=[]", "data.n_train=30")


# Whole runs


HARD = ("task=nli_pairs", "task.hard_negatives=true")
ISTAR = ("task.form=bi", "pooling=mean", "objective=[istar]")
COSREG, SHARE = "objective=[cosreg]", "training.objective_weight_as=share_of_task_gradient"
PROTECT = "isotropy=protect_labels"
OWN = "needs one embedding of each example"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("+trainer.limit_val_batches=2",), "limit_val_batches=2 would score the batches that"),
        (("+trainer.limit_test_batches=0.5",), r"limit_test_batches=0\.5 .* use data\.n_test=N"),
        (("trainer.precision=16-true",), "precision=16-true would round"),
        ((COSREG, SHARE, "trainer.precision=16-mixed"), "measures gradients before they are scale"),
        (("+schedule.num_warmup_steps=3",), r"use training\.warmup_fraction="),
        (("site=[]",), "site must name at least one"),
        (("site=[layer_0]",), "site must be pooled, tokens"),
        (("site=[Pooled]",), "site must be pooled, tokens"),
        (("site=[layer_9]",), "layer_1 to layer_2"),
        *(
            (("rows=no_special", f"site={site}", f"pooling={pooling}"), "leaves CLS and SEP")
            for pooling in ("cls", "last")
            for site in ("[tokens]", "[tokens,pooled]")
        ),
        (("task=rte", "pooling=spans"), "pooling=spans: task=rte has no target words"),
        (("trainer.strategy=fsdp",), "strategy must be auto or ddp, got fsdp"),
        (("+trainer.logger=true",), r"trainer\.logger is set by isotrain itself"),
        (("+trainer.callbacks=[]",), r"trainer\.callbacks is set by isotrain itself"),
        (("+isotropy.width=3", "isotropy=zca"), r"isotropy\.width is set by isotrain itself"),
        (("trainer.max_epochs=null",), "training would never end"),
        (("trainer.devices=many",), r"trainer\.devices must be"),
        (("freezing=first_n", "freezing.n_blocks=1", "peft=lora"), "peft trains its adapters and"),
        ((*ISTAR, "objective.istar.reads=[layer_1]"), "a read point is"),
        ((*ISTAR, "objective.istar.reads=[layer_9/mean]"), "layer_0 .* layer_2"),
        (
            (*ISTAR, "objective.istar.reads=[before]", "site=[tokens]"),
            r"reads=\[before\] is the in",
        ),
        ((PROTECT, "site=[tokens]", "pooling=mean"), OWN),
        ((PROTECT, "site=[pooled,layer_1]"), OWN),
        ((PROTECT, "task=stsb", "task.form=bi", "pooling=mean"), OWN),
        ((PROTECT, "pooling=spans"), OWN),
        (("task=stsb", "objective=[supcon]"), "compares classes, and labels of task=stsb are sco"),
        (
            ("task=stsb", "task.form=bi", "pooling=mean", "training.solved_head=true"),
            "solves a linear head .* task=stsb form=bi has none",
        ),
        (
            ("pooling=spans", "objective=[cosent]", "objective.cosent.reads=[layer_1/mean]"),
            "objective=cosent needs exactly two vectors",
        ),
        (
            (*HARD, "objective=[vicreg]", "objective.vicreg.positives=pair"),
            "objective=vicreg needs exactly two vectors .* give 3",
        ),
        (
            (*HARD[:1], "objective=[simcse]", "objective.simcse.hard_negative_weight=1.0"),
            "weights hard negatives, and an example has none",
        ),
        (
            (*HARD, "objective=[simcse]", "objective.simcse.positive_labels=[1,1]"),
            "positive_labels chooses pairs: use positives=pair",
        ),
        (("objective=[spectral]", "objective.spectral.n_components=16"), "below the width"),
        (("task=text", "objective=[simcse]", "encoder.dropout=0"), "objective=simcse compares two"),
        (
            ("isotropy=published", "data.batch_size=8"),
            r"gets 8 embeddings a step .* need 10: .* use data\.batch_size=10 or more",
        ),
        (("isotropy=published", "data.batch_size=4", "pooling=spans"), "gets 8 embeddings a step"),
        (("data.batch_size=1", "trainer.devices=2"), r"each of 2 .* and data\.batch_size is 1"),
    ],
)
def test_a_run_that_would_mislead_is_rejected_before_it_trains(built, overrides, words):
    with pytest.raises(ValueError, match=words):
        built(*TASK, *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ("site=[tokens,pooled,layer_1,layer_2]", "isotropy=zca"),
        ("rows=no_special", "site=[tokens]", "isotropy=zca", "pooling=mean"),
        ("rows=no_special", "site=[layer_1]", "isotropy=zca"),
        ("task=wic", "task.form=bi", "pooling=spans"),
        ("trainer.strategy=ddp", "+trainer.enable_progress_bar=true"),
        ("trainer.precision=bf16-mixed", COSREG, SHARE),
        (
            "training.select=best",
            "callbacks=[early_stopping]",
            "callbacks.early_stopping.patience=1",
            "data.n_dev=3",
        ),
        ("peft=ia3", "training.layer_decay=0.9"),
        ("freezing=only", "freezing.patterns=[*.bias,*.LayerNorm.*]"),
        (*ISTAR, "objective.istar.weight=0"),
        (*ISTAR, "objective.istar.weight=-1"),
        ("trainer.max_epochs=-1", "trainer.max_steps=3"),
        ("isotropy=published", "data.batch_size=2", "isotropy.stats=queue"),
        ("isotropy=published", "data.batch_size=2", "site=[tokens]"),
        ("isotropy=published", "data.batch_size=10", "trainer.devices=2"),
        (PROTECT, "task=wic", "pooling=mean"),
        (PROTECT, "task=stsb", "pooling=mean"),
    ],
)
def test_a_run_that_is_sound_is_built(built, overrides):
    assert built(*TASK, *overrides).trainer is not None


@pytest.mark.parametrize("task", WITHOUT_LOSS)
def test_a_task_without_a_loss_needs_an_objective(built, task):
    with pytest.raises(ValueError, match=r"has no loss, .*add an objective"):
        built(f"task={task}", *TASK)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("objective=[simcse]", "objective.simcse.weight=0"), "has no loss, .*add an objective"),
        (("objective=[supcon]",), "objective=supcon reads labels"),
        (("objective=[simcse]", "isotropy=protect_labels"), "protect_labels=true reads labels"),
        (("objective=[simcse]", "data.label_noise=0.1"), r"data\.label_noise changes labels"),
        (("objective=[simcse]", "training.select=holdout"), "select=holdout reads labels"),
        (("objective=[simcse]", "training.solved_head=true"), "solved_head=true solves"),
        (("objective=[simcse]", SHARE), "has no loss; use absolute"),
    ],
)
def test_a_task_without_labels(built, overrides, words):
    with pytest.raises(ValueError, match=words):
        built("task=text", *TASK, *overrides)


def test_nodes_count_as_processes(built, monkeypatch):
    """Two nodes of one device each share a batch."""
    whole = built("task=rte", "metric=[]", "data.batch_size=2")
    names = ("TORCHELASTIC_RUN_ID", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK")
    for name, value in zip(names, "12100", strict=True):
        monkeypatch.setenv(name, value)
    shared = built("task=rte", "metric=[]", "data.batch_size=2", "trainer.num_nodes=2")
    assert (whole.trainer.world_size, shared.trainer.world_size) == (1, 2)
    assert whole.data.n_batches(1) == shared.data.n_batches(2)


def test_processes_at_several_stages_stop(monkeypatch):
    """One resumes from a checkpoint, which the other found damaged."""
    stages = [("hash", "fit"), ("hash", "validate")]
    monkeypatch.setattr("isotrain.training.data.of_all_processes", lambda own: stages)
    data = TaskData(None, None, None, 1, 1, "random", 0, name="hash")
    with pytest.raises(RuntimeError, match=r"one resume\.ckpt, and they are at hash fit, hash val"):
        data.setup("fit")


def test_supcon_of_a_block_beside_pooled_spans_trains(built):
    experiment = built(
        *("task=wic", "pooling=spans", "objective=[supcon]", "trainer.max_steps=1"),
        "objective.supcon.reads=[layer_1/cls]",
    )
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert experiment.trainer.global_step == 1


# One rule each, on what it reads alone


def parts(**given):
    """Parts that break no rule, but for those that are given."""
    encoder = given.pop("encoder", SimpleNamespace(n_blocks=6, is_causal=False))
    n_vectors, n_sequences = given.pop("n_vectors", 1), given.pop("n_sequences", 1)
    pooling = SimpleNamespace(reads="all", n_vectors=lambda n_sequences, n_spans: n_vectors)
    transforms = given.pop("transforms", {})
    model = SimpleNamespace(
        encoder=encoder, pooling=pooling, transforms=transforms, sites=list(transforms), head=None
    )
    task = SimpleNamespace(
        **{"name": "mine", "has_loss": True, "n_sequences": n_sequences, "n_spans": 0},
        **{"form": "cross"},
    )
    task.has_loss = task.has_labels = given.pop("has_loss", True)
    cfg = SimpleNamespace(
        training=SimpleNamespace(select=SimpleNamespace(value="last"), solved_head=False),
        site=list(transforms),
    )
    usual = {"objectives": {}, "data": None, "plan": {}, "has_adapters": False}
    return Parts(
        **{"model": model, "task": task, "n_steps": 1, "n_processes": 1},
        **{"cfg": cfg, **usual, **given},
    )


def errors(rule, **given):
    own = parts(**given)
    if rule in rules.RULES:
        return list(rule(own))
    return [error for name, one in own.objectives.items() for error in rule(own, name, one)]


def exact(batch, k, rho, n_components, n_vectors):
    """Whether a batch is enough, in exact arithmetic."""
    n_rows = Fraction(batch * n_vectors, k)
    removed = math.floor(Fraction(str(rho)) * (n_rows - 1))
    return n_rows >= MIN_ROWS and (n_components == 0 or removed >= 1)


@given(
    batch=st.integers(1, 300),
    k=st.integers(1, 20),
    rho=st.integers(1, 100).map(lambda n: n / 100),
    n_components=st.integers(0, 3),
    n_vectors=st.integers(1, 2),
)
@settings(max_examples=200)
def test_a_batch_is_rejected_exactly_where_the_arithmetic_says_so(
    batch, k, rho, n_components, n_vectors
):
    """And the batch size of the message is enough, and the smallest."""
    layer = ClusterPCA(4, n_clusters=k, rho=rho, n_components=n_components, stats="batch")
    own = parts(transforms={"pooled": layer}, n_vectors=n_vectors)

    def rejected(size):
        cfg = SimpleNamespace(data=SimpleNamespace(batch_size=size))
        return list(rules.enough_embeddings(replace(own, cfg=cfg)))

    message = rejected(batch)
    assert bool(message) != exact(batch, k, rho, n_components, n_vectors)
    if message:
        least = int(message[0].partition("use data.batch_size=")[2].split()[0])
        assert not rejected(least)
        assert least == 1 or rejected(least - 1)


def test_a_layer_without_clusters_needs_two_embeddings():
    cfg = SimpleNamespace(data=SimpleNamespace(batch_size=1))
    given = {"transforms": {"pooled": ZCA(4, stats="batch")}, "cfg": cfg}
    assert "use data.batch_size=2 or more" in errors(rules.enough_embeddings, **given)[0]
    assert errors(rules.enough_embeddings, **given, n_vectors=2) == []


def data(*labels, n_sequences=2, n_tokens=3):
    """Training examples of these labels."""
    examples = [
        Example([[0] * n_tokens] * n_sequences, [], [], None, float(label), i)
        for i, label in enumerate(labels)
    ]
    return SimpleNamespace(examples={"train": examples, "dev": []})


@pytest.mark.parametrize("kind", [Alignment, lambda **more: SimCSE(width=4, **more)])
def test_an_interval_that_holds_no_label_is_rejected_with_the_range_of_labels(kind):
    def message(*interval):
        objective = kind(weight=1.0, positives="pair", positive_labels=list(interval))
        return errors(
            rules.labels_of_its_kind, objectives={"mine": objective}, data=data(0.0, 0.25, 1.0)
        )

    assert message(0.2, 0.3) == message(1, 1) == []
    for interval in ((4, 5), (0.3, 0.9)):
        (error,) = message(*interval)
        assert error.startswith("objective.mine.positive_labels=")
        assert "lie in [0, 1]" in error


def test_two_views_need_dropout():
    with_dropout, without = (
        build_tiny(width=8, n_blocks=1, n_heads=1, dropout=p) for p in (0.1, 0.0)
    )

    def message(encoder, **objectives):
        return errors(rules.two_views, objectives=objectives, encoder=encoder)

    two = SimCSE(1.0, 8)
    assert message(with_dropout, mine=two) == []
    assert message(without, mine=SimCSE(1.0, 8, positives="pair"), other=CosReg(1.0)) == []
    assert "use objective.mine.positives=pair" in message(without, mine=two)[0]
    assert "use objective.mine.n_views=1" in message(without, mine=SupCon(1.0, 8, n_views=2))[0]
    for part in without.modules():
        if isinstance(part, nn.Dropout):
            part.attention_dropout = 0.1  # as ModernBERT has it
    assert message(without, mine=two) == []


class Needing(Objective):
    """An objective that needs vectors of a kind."""

    def __init__(self, needs, *reads):
        super().__init__(1.0, reads)
        self.needs = needs

    def forward(self, views, labels):
        """Never called."""


@pytest.mark.parametrize(
    ("needs", "text", "n_vectors", "is_causal", "words"),
    [
        ("rows", "all/tokens", 1, False, ""),
        ("rows", "layer_7/mean", 1, False, "layer_0 (embeddings) to layer_6"),
        ("pairs", "pooled", 1, False, "needs two vectors of an example, and at pooled"),
        ("pairs", "pooled", 3, False, ""),
        ("two_vectors", "pooled", 3, False, "needs exactly two vectors"),
        ("classes", "pooled", 2, False, "at pooled this task and pooling give 2"),
        ("classes", "layer_1/cls", 2, False, ""),  # a block gives a vector of each sequence
        ("scored_pairs", "pooled", 2, False, ""),
        ("scored_pairs", "layer_1/mean", 2, False, "at layer_1/mean this task gives 1"),
        ("classes", "layer_1/tokens", 1, False, "compares examples"),
        ("rows", "layer_0/cls", 1, False, "read layer_0/mean"),
        ("rows", "layer_0/last", 1, True, "read layer_0/mean"),
        ("rows", "layer_2/cls", 1, True, "read layer_2/last"),
        ("rows", "all/cls", 1, True, "read all/last"),
        ("rows", "layer_2/last", 1, True, ""),
    ],
)
def test_read_points(needs, text, n_vectors, is_causal, words):
    encoder = SimpleNamespace(n_blocks=6, is_causal=is_causal)
    given = {"objectives": {"mine": Needing(needs, text)}, "n_vectors": n_vectors}
    message = errors(rules.read_points, encoder=encoder, **given)
    assert len(message) == bool(words)
    assert words in "".join(message)


def reported_of_gradients(places, plan, encoder, transforms=None, has_loss=True):
    objectives = {"mine": CosReg(1.0, reads=places)}
    given = {"plan": plan, "transforms": transforms or {}, "has_loss": has_loss}
    given |= {"objectives": objectives, "encoder": encoder}
    return [
        error
        for rule in (rules.trains_below, rules.every_stage_trains)
        for error in errors(rule, **given)
    ]


@pytest.mark.parametrize(
    ("places", "n_last", "rejected"),
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
def test_what_reads_only_frozen_places_is_rejected(places, n_last, rejected):
    """And has a gradient, in the encoder itself, exactly where it is not rejected."""
    encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    plan = train_last_n(encoder, 1, n_blocks=n_last)
    assert bool(reported_of_gradients(places, plan, encoder)) == rejected
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
    assert any(cloud.requires_grad for cloud in clouds) != rejected


def test_a_place_that_a_later_stage_reaches_is_enough_beside_a_loss_of_the_task():
    encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    plan = unfreeze_gradually(encoder, steps_per_epoch=5)
    assert not reported_of_gradients(["layer_1/mean"], plan, encoder)
    assert "in a stage" in reported_of_gradients(["layer_1/mean"], plan, encoder, has_loss=False)[0]
    assert not reported_of_gradients(["pooled"], plan, encoder, has_loss=False)


def test_an_isotropy_layer_that_learns_is_something_to_train():
    encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    plan = freeze_encoder(encoder, 1)
    layer = BatchNorm(8)
    for site, place in (("pooled", "pooled"), ("tokens", "before"), ("layer_1", "layer_2/mean")):
        assert reported_of_gradients([place], plan, encoder)
        assert not reported_of_gradients([place], plan, encoder, {site: layer})
    assert reported_of_gradients(["before"], plan, encoder, {"pooled": layer})
    assert reported_of_gradients(["layer_1/mean"], plan, encoder, {"layer_1": layer})
    fixed = {"pooled": Standardize(8)}
    assert reported_of_gradients(["pooled"], plan, encoder, fixed)


def test_the_vectors_of_an_example_are_those_of_task_and_pooling():
    task = WiC(form="bi")
    own = parts(n_vectors=2)
    assert replace(own, task=task).n_vectors == 2
