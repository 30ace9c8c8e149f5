"""What a composed configuration must fulfil, against the arithmetic and rules it states."""

import math
import re
from fractions import Fraction

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf, open_dict

from isotrain.arguments import violation
from isotrain.config.check import BOUNDS, missing_keys, mistakes_in
from isotrain.config.compose import compose_run, plain
from isotrain.config.schema import RUN
from isotrain.geometry.cluster_pca import MIN_ROWS
from isotrain.training.requirements import check
from tests.compositions import composed_once
from tests.judge import all_mistakes
from tests.parts import WITHOUT_LOSS

BASE = ("encoder=tiny", "source=demo")


@pytest.fixture(scope="module")
def layered():
    """A run with a layer of batch statistics; tests change its keys in place."""
    return compose_run([*BASE, "isotropy=cluster_pca", "isotropy.stats=batch"])


def mistakes(*overrides):
    return all_mistakes(composed_once(*BASE, *overrides))


# Embeddings of a batch, against exact arithmetic

sizes = {
    "batch": st.integers(1, 300),
    "k": st.integers(1, 20),
    "rho": st.integers(1, 100).map(lambda n: n / 100),
    "n_components": st.integers(0, 4),
    "form": st.sampled_from(["cross", "bi"]),
}


def is_enough(batch, k, rho, n_components, form):
    """The two rules, in exact arithmetic."""
    rows = Fraction(batch * (2 if form == "bi" else 1), k)
    removed = math.floor(Fraction(str(rho)) * (rows - 1))
    return rows >= MIN_ROWS and (n_components == 0 or removed >= 1)


def told(cfg, batch, k, rho, n_components, form):
    keys = {
        "data.batch_size": batch,
        "isotropy.n_clusters": k,
        "isotropy.rho": rho,
        "isotropy.n_components": n_components,
        "task.form": form,
    }
    for key, value in keys.items():
        OmegaConf.update(cfg, key, value)
    return all_mistakes(cfg)


@given(**sizes)
@settings(max_examples=60)
def test_a_batch_is_rejected_exactly_where_the_arithmetic_says_so(layered, **keys):
    found = told(layered, **keys)
    assert (found == []) == is_enough(**keys), found
    assert len(found) <= 1
    if found:
        assert found[0].startswith(f"data.batch_size={keys['batch']}")
        assert f"isotropy.n_clusters={keys['k']}" in found[0]


@given(**{**sizes, "batch": st.integers(1, 4)})  # few enough
@settings(max_examples=40, phases=[Phase.generate])
def test_the_batch_size_of_the_message_is_enough_and_the_smallest(layered, **keys):
    found = told(layered, **keys)
    assume(found)
    least = int(re.search(r"use data.batch_size=(\d+) or more", found[0])[1])
    assert told(layered, **{**keys, "batch": least}) == []
    assert told(layered, **{**keys, "batch": least - 1}) != []


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("data.batch_size=8",), "a cluster, which needs 5 at isotropy.rho=0.25"),
        (
            ("data.batch_size=4", "pooling=spans"),
            "data.batch_size=4 × 2 vectors over isotropy.n_clusters=2 leaves 4 embeddings",
        ),
        (("data.batch_size=10", "trainer.devices=2", "sync=false"), "=10 over 2 processes"),
        (("data.batch_size=10", "trainer.devices=[0,1]", "sync=true"), None),
        (("data.batch_size=2", "isotropy.stats=queue"), None),
        (("data.batch_size=2", "site=[tokens]"), None),  # a sentence has many tokens
        (("data.batch_size=2", "site=[layer_1]"), None),
        (("~isotropy.rho",), None),  # the default of the argument
        (("~isotropy.n_components",), None),
    ],
)
def test_batches_of_the_published_layer(overrides, words):
    found = mistakes("isotropy=published", *overrides)
    assert len(found) == (words is not None), found
    assert words is None or words in found[0]


OWN = """
    from typing import Annotated
    from pydantic import Field
    from isotrain.transforms.cluster_pca import ClusterPCA

    class Own:
        def __init__(self, width, rho: float = 0.0, stats="batch", n_clusters: int = 40,
                     turns: Annotated[int, Field(ge=2, le=5)] = 3): ...

    class Turned(ClusterPCA): ...

    class Fixed(ClusterPCA):
        def __init__(self, width: int, stats: str = "batch"): ...
"""


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("Own", {"rho": 0.0, "n_clusters": 40, "stats": "batch"}, None),
        ("Own", {"turns": 6}, "isotropy.turns must be at most 5, got 6"),
        ("Own", {"turns": 2.5}, "isotropy.turns must be a valid integer, got 2.5"),
        ("Turned", {"n_clusters": 0}, "isotropy.n_clusters must be at least 1, got 0"),
        ("Turned", {"stats": "batch"}, "isotropy.n_clusters=8 leaves 0.5 embeddings a cluster"),
        ("Fixed", {}, None),
    ],
)
def test_bounds_and_rules_are_those_of_the_layer(allowed, name, keys, words):
    module = allowed(OWN)
    cfg = compose_run([*BASE, "data.batch_size=4"])
    target = {"_target_": f"{module}.{name}", "_partial_": True}
    OmegaConf.update(cfg, "isotropy", {**target, **keys}, merge=False, force_add=True)
    found = all_mistakes(cfg)
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


# Bounds

OF_PARTS = {
    **{
        "isotropy.n_clusters": 1,
        "isotropy.queue_rows": 2,
        "isotropy.n_components": 0,
        "task.head_dropout": 0,
    },
    **{f"encoder.{key}": 1 for key in ("width", "n_blocks", "n_heads")},
    **{"encoder.dropout": 0, "task.max_length": 3},
}
RULES = {key: violation(bounds, -1) for key, bounds in BOUNDS[RUN.name].items()}
LEAST = {key: int(rule[17]) for key, rule in RULES.items() if rule.startswith("must be at least")}


@pytest.mark.parametrize(("key", "least"), sorted({**LEAST, **OF_PARTS}.items()))
def test_the_least_value_is_legal_and_one_below_is_not(key, least):
    more = ["isotropy=cluster_pca"] if key.startswith("isotropy.") else []
    more += ["trainer.max_steps=1"] if key == "trainer.max_epochs" else []  # else it has no end
    assert mistakes(*more, f"++{key}={least}") == []
    (mistake,) = mistakes(*more, f"++{key}={least - 1}")
    assert mistake.startswith(f"{key} must be at least {least}, got {least - 1}")


HOLDOUT = "training.select=holdout"


@pytest.mark.parametrize(
    ("overrides", "legal", "rejected"),
    [
        (["isotropy=cluster_pca", "isotropy.rho"], ["1", "1e-9"], ["0", "1.5", "nan"]),
        (["encoder.dropout"], ["0.99"], ["1", "-0.1"]),
        (["training.warmup_fraction"], ["0", "1"], ["1.01", "nan"]),
        (["training.layer_decay"], ["1", "0.1"], ["0", "1.1", "nan"]),
        ([HOLDOUT, "data.holdout"], ["0.5", "null"], ["0", "1", "-0.1", "nan"]),
        (["optimizer=muon", "optimizer.muon_lr"], ["0"], ["-1"]),
        (["optimizer=muon", "optimizer.momentum"], ["0"], ["1.0"]),
        (["optimizer=muon", "optimizer.muon_weight_decay"], ["0"], ["-0.1"]),
        (["trainer.val_check_interval"], ["0.5", "3"], ["0"]),
        (["seed"], ["4294967295"], ["99999999999"]),
        (["task=rte", "data.fraction"], ["1", "0.5", "1e-6"], ["0", "-0.1", "1.01", "nan"]),
        (["task=rte", "data.n_train"], ["1", "500", "null"], ["0", "-3"]),
        (["task=rte", "data.label_skew"], ["0", "0.999"], ["-0.1", "1", "1.5", "nan"]),
        (["task=rte", "data.label_noise"], ["0", "1", "0.5"], ["-0.1", "1.01", "nan"]),
    ],
)
def test_bounds(overrides, legal, rejected):
    *others, key = overrides
    for value in legal:
        assert mistakes(*others, f"{key}={value}") == []
    for value in rejected:
        (mistake,) = mistakes(*others, f"{key}={value}")
        assert mistake.startswith(f"{key} must be ")


# Rules across keys

SIMCSE = ("task=nli_pairs", "objective=[simcse]")
ISTAR = ("task.form=bi", "objective=[istar]")
COSREG, SHARE = "objective=[cosreg]", "training.objective_weight_as=share_of_task_gradient"
HALF = ("trainer.precision=16-mixed", "optimizer.fused=false")
WARM = "training.objective_weight_schedule=warmup"


@pytest.mark.parametrize(
    ("overrides", "starts"),
    [
        (("trainer.devices=0",), ["trainer.devices"]),
        (("trainer.devices=many",), ["trainer.devices"]),
        (("task.form=pair",), ["task.form"]),
        (("+metric.mine=3",), ["metric.mine"]),
        (("+metric.mine.every=3",), ["metric.mine"]),
        (("+objective.mine.weight=1",), ["objective.mine"]),
        (("+logger.mine=3",), ["logger.mine"]),
        # sites, and tokens of a site
        (("site=[tokens,pooled,layer_1,layer_12]",), []),
        (("site=[]",), ["site must name at least one"]),
        *(((f"site=[{s}]",), ["site must be pooled, tokens"]) for s in ("layer_0", "layer_01")),
        *(((f"site=[{s}]",), ["site must be pooled, tokens"]) for s in ("layer_-1", "Pooled", "5")),
        *(
            (("rows=no_special", f"site={site}", f"pooling={pooling}"), [start] if start else [])
            for pooling, at_tokens in (("cls", 1), ("mean", 0), ("spans", 0), ("last", 1))
            for site, start in (
                ("[pooled]", ""),
                ("[tokens]", "rows=no_special leaves CLS" if at_tokens else ""),
                ("[tokens,pooled]", "rows=no_special leaves CLS" if at_tokens else ""),
                ("[layer_1]", ""),
            )
        ),
        *(((f"task={t}", "pooling=spans"), ["pooling=spans needs"]) for t in ("rte", "stsb")),
        (("task=wic", "task.form=bi", "pooling=spans"), []),
        # the trainer
        (("+trainer.num_nodes=2",), []),
        (("trainer.strategy=fsdp",), ["trainer.strategy must be auto or ddp, got fsdp: each"]),
        (("trainer.strategy=ddp", "+trainer.enable_progress_bar=true"), []),
        (
            ("+trainer.logger=true",),
            ["trainer.logger is set by isotrain itself; use"],
        ),
        (("trainer.precision=bf16-mixed",), []),
        (HALF, []),
        (("trainer.precision=16-mixed", "trainer.gradient_clip_val=null"), []),
        (("trainer.precision=16-true",), ["trainer.precision=16-true would round"]),
        # the monitor
        (("metric=[partition_null]", "monitor.headline=[partition_null_low]"), []),
        (("metric=[lid]", "monitor.headline=[lid_value,lid]"), []),
        (("monitor.headline=[]", "monitor.views=[]"), []),
        (("metric=[self_similarity]", "monitor.views=[cls]", "site=[tokens]"), []),
        # selection and changes of the data
        (("training.select=best", "training.patience=1", "data.n_dev=3"), []),
        (("+trainer.limit_val_batches=0",), []),
        (("data.holdout=0.1",), []),
        (
            ("data.fraction=0.5", "data.n_train=100"),
            ["data.fraction=0.5 and data.n_train=100 both"],
        ),
        (("data.fraction=1", "data.n_train=100"), []),
        # what trains
        (("peft=ia3", "training.layer_decay=0.9"), []),
        (("freezing=only", "freezing.patterns=[*.bias,*.LayerNorm.*]"), []),
        (("freezing=first_n", "peft=lora"), ["peft trains its adapters and freezes the rest"]),
        (("freezing=only", "freezing.patterns=bias"), ["freezing.patterns must be a list"]),
        (
            ("freezing=only", "freezing.patterns=[1]"),
            ["freezing.patterns must be a valid string"],
        ),
        (("freezing=gradual", "freezing.every=0"), ["freezing.every must be at least 1"]),
        (("freezing=gradual", "freezing.unit=batch"), ["freezing.unit must be epoch or step"]),
        (("freezing=last_n", "freezing.n_blocks=0"), ["freezing.n_blocks must be at least 1"]),
        (("peft=lora", "peft.r=0"), ["peft.r must be at least 1, got 0"]),
        (("peft=lora", "peft.dropout=1.0"), ["peft.dropout must be below 1, got 1.0"]),
        (("peft=lora", "peft.target_modules=query"), ["peft.target_modules must be a valid list"]),
        # read points and weights of objectives
        ((*ISTAR, "objective.istar.weight=0"), []),
        ((*ISTAR, "objective.istar.weight=-1"), []),
        ((*ISTAR, "objective.istar.reads=[]"), ["objective.istar.reads must be a list"]),
        ((COSREG, SHARE, *HALF), [f"{SHARE} measures gradients before they are scaled, and train"]),
        ((COSREG, SHARE, "trainer.precision=bf16-mixed"), []),
        ((COSREG, WARM), []),
        # names given twice, and nothing given
        (("optimizer.betas=[0.9,0.9]",), []),
        (("trainer.max_epochs=null",), ["trainer.max_epochs and max_steps set no end"]),
        (("trainer.max_epochs=-1", "trainer.max_steps=3"), []),
        (("isotropy=[zca]",), []),
        (("+trainer.limit_train_batches=0",), ["trainer.limit_train_batches must be above 0"]),
        ((*ISTAR, "objective.istar.reads=[layer_1]"), ["objective.istar.reads: a read point is"]),
        (
            (*ISTAR, "objective.istar.reads=[before]", "site=[tokens]"),
            ["objective.istar.reads=[before] is the input of the isotropy layer at pooled"],
        ),
        ((*SIMCSE, "task.hard_negatives=true", "objective.simcse.positives=pair"), []),
    ],
)
def test_rules(overrides, starts):
    found = mistakes(*overrides)
    assert len(found) == len(starts), found
    assert all(any(mistake.startswith(start) for mistake in found) for start in starts), found


@pytest.mark.parametrize("task", WITHOUT_LOSS)
@pytest.mark.parametrize(
    ("overrides", "start"),
    [
        ((), "task={} has nothing to learn from without an objective; add objective=[simcse]"),
        (
            ("objective=[simcse]", "objective.simcse.weight=0"),
            "task={} has nothing to learn from without an objective of a weight other than 0",
        ),
        (("objective=[supcon]",), "objective=supcon reads labels, and those of task={} have"),
        (
            (
                *("objective=[simcse]", "objective.simcse.positives=pair"),
                "objective.simcse.positive_labels=[1,1]",
            ),
            "objective.simcse.positive_labels chooses pairs by their label",
        ),
        (("objective=[simcse]", "isotropy=protect_labels"), "isotropy.protect_labels=true reads"),
        *(
            (("objective=[simcse]", f"data.{change}"), f"data.{change.partition('=')[0]} changes")
            for change in ("label_skew=0.5", "label_noise=0.1", "hypothesis_only=true")
        ),
        (("objective=[simcse]", HOLDOUT), "training.select=holdout scores training examples"),
        (("objective=[simcse]", "training.solved_head=true"), "training.solved_head=true reads"),
        (("objective=[simcse]", SHARE), f"{SHARE}, and task={{}} has no loss; use absolute"),
    ],
)
def test_tasks_without_labels(task, overrides, start):
    (mistake,) = mistakes(f"task={task}", *overrides)
    assert mistake.startswith(start.format(task))


@pytest.mark.parametrize(
    ("text", "keys", "starts"),
    [
        (
            "class Mine:\n    n_views, needs = 1, 'scored_pairs'\n    def __init__(self): ...",
            {"objective.simcse": {"_target_": "{}.Mine"}},
            ["objective=simcse reads labels"],
        ),
        (
            "from isotrain.model import pooling\nclass Mine(pooling.ClsPooling): ...",
            {"pooling": {"_target_": "{}.Mine"}, "rows": "no_special", "site": ["tokens"]},
            ["rows=no_special leaves CLS"],
        ),
        *(
            (
                "from typing import Annotated\nfrom torch import Tensor\n"
                f"def mine(x, {argument}):\n    return x.sum()\n",
                {
                    "metric.isoscore.function": {"_target_": "{}.mine", "_partial_": True},
                    "monitor.views": ["cls"],
                },
                starts,
            )
            for argument, starts in (
                ("reference", []),
                ("*, labels=None", []),
            )
        ),
    ],
)
def test_parts_of_a_user_follow_the_rules_by_their_constants(allowed, text, keys, starts):
    module = allowed(text)
    cfg = composed_once(*BASE, *SIMCSE, "metric=[isoscore]")
    for key, value in keys.items():
        if isinstance(value, dict):
            value = {**value, "_target_": value["_target_"].format(module)}
        OmegaConf.update(cfg, key, value, merge=False)
    found = all_mistakes(cfg)
    assert [mistake[: len(start)] for mistake, start in zip(found, starts, strict=True)] == starts


# Groups, targets and references


def test_missing_values_come_first_and_nothing_is_resolved():
    cfg = compose_run(["encoder=huggingface", "source=local", "data.batch_size=0"])
    with open_dict(cfg):
        cfg.optimizer.lr = "???"
    assert missing_keys(cfg) == ["encoder.name", "optimizer.lr"]
    assert all_mistakes(cfg) == [
        "encoder.name has no value; set encoder.name=...",
        "optimizer.lr has no value; set optimizer.lr=...",
    ]


@pytest.mark.parametrize(
    "content", [None, {"width": 3}, {"_target_": ""}, "text", [1], {"_target_": 5}]
)
@pytest.mark.parametrize(
    "group", ["task", "encoder", "pooling", "isotropy", "optimizer", "trainer"]
)
def test_a_group_without_a_target_or_of_another_kind(group, content):
    cfg = composed_once(*BASE)
    with open_dict(cfg):
        cfg[group] = content
    start = f"{group} must be one of its options, with a _target_, got "
    assert sum(line.startswith(start) for line in all_mistakes(cfg)) == 1


@pytest.mark.parametrize(
    "value",
    ["${oc.env:A_TARGET}", "${oc.env:NOT_SET,os.getcwd}", "${oc.select:output_dir}"],
)
def test_a_forbidden_target_is_found_behind_a_reference(monkeypatch, value):
    monkeypatch.setenv("A_TARGET", "os.getcwd")
    cfg = compose_run([*BASE, "metric=[isoscore]"])
    cfg.output_dir = "os.getcwd"
    cfg.encoder._target_ = value
    assert [m for m in all_mistakes(cfg) if "os.getcwd is not allowed" in m]


@pytest.mark.parametrize("key", ["seed", "threads", "data.batch_size"])
@pytest.mark.parametrize("value", ["${oc.env:NOT_SET}", "${nothing}", "${oc.env:A_WORD}"])
def test_unresolved_numbers(monkeypatch, key, value):
    """`OmegaConf.select` raises where the value is compared with the least."""
    monkeypatch.setenv("A_WORD", "word")
    found = mistakes(f"{key}={value}")
    assert found
    assert key.partition(".")[0] in found[0]


def test_a_check_changes_nothing_and_lists_the_mistakes():
    cfg = compose_run([*BASE, "data.batch_size=0", "threads=0"])
    before = plain(cfg)
    with pytest.raises(ValueError, match=r"data\.batch_size") as caught:
        check(cfg)
    assert str(caught.value).splitlines() == mistakes_in(cfg)
    assert plain(cfg) == before
