"""What a composed configuration must fulfil, against the arithmetic and rules it states."""

from __future__ import annotations

import functools
import math
import re
from copy import deepcopy
from fractions import Fraction

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf, open_dict

from isotrain.config.check import mistakes_in
from isotrain.config.compose import compose_run, plain
from isotrain.config.schema import BOUNDS
from isotrain.config.validate import missing_keys
from isotrain.geometry.cluster_removal import Removal
from isotrain.training.requirements import check
from isotrain.transforms.cluster_pca import ClusterPCA
from tests.judge import all_mistakes

BASE = ("encoder=tiny", "source=demo")
GROUPS = ("task", "encoder", "pooling", "isotropy", "metric", "source")


@pytest.fixture(scope="module")
def layered():
    """A run with a layer of batch statistics; tests change its keys in place."""
    return compose_run([*BASE, "isotropy=cluster_pca", "isotropy.stats=batch"])


@functools.cache
def composed_once(overrides):
    return compose_run(overrides)


def base():
    return deepcopy(composed_once(BASE))


def mistakes(*overrides):
    """Groups are composed, once for all tests that choose the same; values are then set."""
    groups = [text for text in overrides if text.partition("=")[0] in GROUPS]
    values = [text for text in overrides if text not in groups]
    cfg = deepcopy(composed_once((*BASE, *groups)))
    parsed = OverridesParser.create().parse_overrides(values)
    ConfigLoaderImpl._apply_overrides_to_config(parsed, cfg)
    return all_mistakes(cfg)


def batch_mistakes(cfg, **keys):
    for key, value in keys.items():
        OmegaConf.update(cfg, key.replace("__", "."), value)
    return all_mistakes(cfg)


sizes = {
    "batch": st.integers(1, 300),
    "k": st.integers(1, 20),
    "min_rows": st.integers(1, 12),
    "rho": st.integers(1, 100).map(lambda n: n / 100),
    "n_components": st.integers(0, 4),
    "form": st.sampled_from(["cross", "bi"]),
}


def is_enough(batch, k, min_rows, rho, n_components, form):
    """The two rules, in exact arithmetic."""
    rows = Fraction(batch * (2 if form == "bi" else 1), k)
    removed = math.floor(Fraction(str(rho)) * (rows - 1))
    return rows >= min_rows and (n_components == 0 or removed >= 1)


def told(cfg, batch, k, min_rows, rho, n_components, form):
    return batch_mistakes(
        cfg,
        data__batch_size=batch,
        isotropy__n_clusters=k,
        isotropy__removal__min_rows=min_rows,
        isotropy__removal__rho=rho,
        isotropy__n_components=n_components,
        task__form=form,
    )


@given(**sizes)
@settings(max_examples=60)
def test_a_batch_is_refused_exactly_where_the_arithmetic_says_so(layered, **keys):
    found = told(layered, **keys)
    assert (found == []) == is_enough(**keys), found
    assert len(found) <= 1
    if found:
        assert found[0].startswith(f"data.batch_size={keys['batch']}")
        assert f"isotropy.n_clusters={keys['k']}" in found[0]
        assert "isotropy.stats=queue" in found[0]


@given(**{**sizes, "batch": st.integers(1, 12), "min_rows": st.integers(6, 12)})  # few enough
@settings(max_examples=40, phases=[Phase.generate])
def test_the_batch_size_that_is_told_is_enough_and_the_smallest(layered, **keys):
    """With min_rows the size that is told can be refused in turn (published: 4, 8, 10)."""
    found = told(layered, **keys)
    assume(found)
    least = int(re.search(r"use data.batch_size=(\d+) or more", found[0])[1])
    assert told(layered, **{**keys, "batch": least}) == []
    assert told(layered, **{**keys, "batch": least - 1}) != []


def test_the_arithmetic_is_shown():
    (mistake,) = mistakes("isotropy=published", "data.batch_size=8")
    assert "data.batch_size=8 over isotropy.n_clusters=2 leaves 4 rows a cluster" in mistake
    assert "floor(rho·(n−1)) = floor(0.25·3) = 0 directions" in mistake
    assert "use data.batch_size=10 or more" in mistake


@pytest.mark.parametrize("overrides", [("task.form=bi",), ("pooling=spans",)])
def test_two_vectors_an_example_count_twice(overrides):
    small = ("isotropy=published", "data.batch_size=4", *overrides)
    (mistake,) = mistakes(*small)
    assert "data.batch_size=4 × 2 vectors over isotropy.n_clusters=2 leaves 4 rows" in mistake
    assert mistakes("isotropy=published", "data.batch_size=5", *overrides) == []


@pytest.mark.parametrize("devices", ["2", "[0,1]"])
def test_without_sync_each_process_needs_rows_enough(devices):
    shared = ("isotropy=published", f"trainer.devices={devices}", "data.batch_size=10")
    assert mistakes(*shared, "sync=true") == []
    (mistake,) = mistakes(*shared, "sync=false")
    assert "data.batch_size=10 over 2 processes (sync=false)" in mistake


@pytest.mark.parametrize(
    "overrides",
    [
        ("isotropy.stats=queue",),
        ("site=[tokens]", "isotropy.stats=batch"),  # a sentence has many tokens
        ("site=[layer_1]", "isotropy.stats=batch"),
    ],
)
def test_a_small_batch_is_fine_where_the_rows_are_not_its_pooled_vectors(overrides):
    assert mistakes("isotropy=cluster_pca", "data.batch_size=2", *overrides) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("isotropy.removal.rho=0", "rho"),
        ("isotropy.removal.rho=half", "isotropy.removal.rho must be float"),
        ("isotropy.n_clusters=0", "n_clusters"),
        ("isotropy.n_clusters=two", "isotropy.n_clusters must be int"),
        ("isotropy.removal.min_rows=few", "isotropy.removal.min_rows must be int"),
        ("isotropy.n_components=null", "isotropy.n_components must be int"),
    ],
)
def test_wrong_sizes_of_a_layer_of_batch_statistics_are_told(change, word):
    found = mistakes("isotropy=published", change)
    assert found
    assert word in found[0]


@pytest.mark.parametrize("key", ["removal.rho", "removal.min_rows", "removal", "n_components"])
def test_a_layer_of_batch_statistics_may_leave_keys_to_their_defaults(key):
    """KeyError; these arguments have defaults."""
    assert mistakes("isotropy=published", f"~isotropy.{key}") == []


OF_PARTS = {
    **{f"isotropy.{key}": 1 for key in ("n_clusters", "removal.min_rows", "assign.n_iterations")},
    **{"isotropy.queue_rows": 2, "isotropy.n_components": 0, "task.head_dropout": 0},
    **{f"encoder.{key}": 1 for key in ("width", "n_blocks", "n_heads")},
    **{"encoder.dropout": 0, "task.max_length": 3},
}


LEAST = {key: bounds.least for key, bounds in BOUNDS.items() if bounds.least is not None}


@pytest.mark.parametrize(("key", "least"), sorted({**LEAST, **OF_PARTS}.items()))
def test_the_least_value_is_legal_and_one_below_is_not(key, least):
    layer = ["isotropy=cluster_pca"] if key.startswith("isotropy.") else []
    assert mistakes(*layer, f"{key}={least}") == []
    (mistake,) = mistakes(*layer, f"{key}={least - 1}")
    assert mistake.startswith(f"{key} must be at least {least}, got {least - 1}")


@pytest.mark.parametrize("key", ["encoder.dropout", "task.head_dropout"])
@pytest.mark.parametrize("task", ["rte", "snli", "stsb", "wic"])
def test_a_share_that_must_leave_something_is_below_one(key, task):
    assert mistakes(f"task={task}", f"{key}=0.99") == []
    assert mistakes(f"task={task}", f"{key}=1") == [f"{key} must be below 1, got 1"]


def test_a_share_is_one_at_most():
    assert mistakes("isotropy=cluster_pca", "isotropy.removal.rho=1") == []
    told = ["isotropy.removal.rho must be at most 1, got 1.5"]
    assert mistakes("isotropy=cluster_pca", "isotropy.removal.rho=1.5") == told


@pytest.mark.parametrize(
    ("rho", "told"),
    [
        ("0.0005", None),
        ("1e-9", None),
        ("0", "above 0, got 0"),
        ("-1", "above 0, got -1"),
        ("nan", "a finite number, got nan"),
    ],
)
def test_a_share_of_directions_is_above_zero_as_the_layer_says_itself(rho, told):
    found = mistakes("isotropy=cluster_pca", f"isotropy.removal.rho={rho}")
    assert found == ([f"isotropy.removal.rho must be {told}"] if told else [])
    if not told:
        ClusterPCA(width=8, removal=Removal(rho=float(rho)))


OWN = """
    from typing import Annotated
    from isotrain.arguments import Bounds
    from isotrain.transforms.cluster_pca import ClusterPCA

    class Own:
        def __init__(self, width, rho: float = 0.0, stats="batch", n_clusters: int = 40,
                     turns: Annotated[int, Bounds(least=2, most=5)] = 3): ...

    class Turned(ClusterPCA): ...

    class Fixed(ClusterPCA):
        def __init__(self, width: int, stats: str = "batch"): ...
"""


@pytest.fixture
def own(package, monkeypatch):
    """`own(name, **keys)`: mistakes where the layer is one of a package of the user's."""
    module = package(OWN)
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])

    def told(name, **keys):
        cfg = compose_run([*BASE, "data.batch_size=4"])
        target = {"_target_": f"{module}.{name}", "_partial_": True}
        OmegaConf.update(cfg, "isotropy", {**target, **keys}, merge=False, force_add=True)
        return all_mistakes(cfg)

    return told


def test_bounds_and_rules_are_those_of_the_layer_that_is_chosen(own):
    assert own("Own", rho=0.0, n_clusters=40, stats="batch") == []
    assert own("Own", turns=1) == ["isotropy.turns must be at least 2, got 1"]
    assert own("Own", turns=6) == ["isotropy.turns must be at most 5, got 6"]
    assert own("Own", turns=2.5) == ["isotropy.turns must be int, got 2.5"]


def test_a_layer_that_inherits_keeps_the_rules(own):
    assert own("Turned", n_clusters=0) == ["isotropy.n_clusters must be at least 1, got 0"]
    (mistake,) = own("Turned", stats="batch")
    assert "over isotropy.n_clusters=8 leaves 0.5 rows a cluster" in mistake
    assert own("Fixed") == []


@pytest.mark.parametrize(
    ("fraction", "is_fine"), [("0", True), ("1", True), ("1.01", False), ("nan", False)]
)
def test_the_share_of_warmup(fraction, is_fine):
    assert (mistakes(f"training.warmup_fraction={fraction}") == []) == is_fine


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("training.head_lr_factor=-1", "training.head_lr_factor"),
        ("optimizer.lr=-1", "optimizer.lr"),
        ("optimizer.lr=nan", "optimizer.lr"),
        ("trainer.accumulate_grad_batches=0", "trainer.accumulate_grad_batches"),
        ("trainer.val_check_interval=0", "trainer.val_check_interval"),
        ("trainer.devices=0", "trainer.devices"),
        ("trainer.devices=many", "trainer.devices"),
        ("seed=99999999999", "seed"),
        ("task.form=pair", "task.form"),
        ("task.max_length=-3", "task.max_length"),
        ("+metric.mine=3", "metric.mine"),
        ("+metric.mine.every=3", "metric.mine"),
        ("+metric.isoscore.name=x", "metric.isoscore.name"),
        ("+objective.mine=3", "objective.mine"),
        ("+objective.mine.weight=1", "objective.mine"),
        ("+logger.mine=3", "logger.mine"),
        ("optimizer._partial_=false", "optimizer"),
        ("~isotropy._partial_", "isotropy"),
        ("+task._partial_=true", "task"),
        ("+optimizer._args_=[1]", "optimizer"),
    ],
)
def test_values_that_no_run_can_use_are_told_before_it(change, word):
    found = mistakes(change)
    assert found
    assert word in found[0]


@pytest.mark.parametrize(
    ("site", "wanted"),
    [
        ("[pooled]", None),
        ("[tokens,pooled,layer_1,layer_12]", None),
        ("[]", "at least one, got []"),
        ("[tokens,tokens]", "site must name each place once"),
        ("[layer_0]", "got layer_0"),
        ("[layer_01]", "got layer_01"),
        ("[layer_-1]", "got layer_-1"),
        ("[layer_]", "got layer_"),
        ("[Pooled,token]", "got Pooled, token"),
        ("[5]", "got 5"),
        ("[[pooled]]", "site"),
    ],
)
def test_sites(site, wanted):
    found = mistakes(f"site={site}")
    assert (found == []) == (wanted is None)
    if wanted:
        assert wanted in found[0]


@pytest.mark.parametrize("pooling", ["cls", "mean", "spans", "last"])
@pytest.mark.parametrize("site", ["[pooled]", "[tokens]", "[tokens,pooled]", "[layer_1]"])
def test_rows_without_specials_need_a_site_that_they_change(pooling, site):
    found = mistakes("rows=no_special", f"site={site}", f"pooling={pooling}")
    without_tokens = site == "[pooled]"
    unchanged = "tokens" in site and pooling in ("cls", "last")
    assert len(found) == int(without_tokens or unchanged)
    assert mistakes(f"site={site}", f"pooling={pooling}") == []


@pytest.mark.parametrize(("base", "is_told"), [("ClsPooling", True), ("MeanPooling", False)])
def test_an_own_pooling_is_judged_by_what_it_reads(package, monkeypatch, base, is_told):
    module = package(
        f"from isotrain.model import pooling as poolers\nclass Mine(poolers.{base}): ..."
    )
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    pooling = (f"pooling._target_={module}.Mine", "rows=no_special", "site=[tokens]")
    assert len(mistakes(*pooling)) == is_told


@pytest.mark.parametrize("task", ["rte", "stsb", "wic"])
@pytest.mark.parametrize("form", ["cross", "bi"])
def test_spans_need_a_task_that_has_them(task, form):
    found = mistakes(f"task={task}", f"task.form={form}", "pooling=spans")
    assert len(found) == int(task != "wic")
    assert all("has none; use cls" in mistake for mistake in found)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("+trainer.num_nodes=2",), []),
        (("+trainer.strategy=ddp_spawn",), ["trainer.strategy "]),
        (("trainer.precision=bf16-mixed",), []),
        (("trainer.precision=16-mixed",), ["trainer.precision=16-mixed cannot clip"]),
        (("trainer.precision=16-mixed", "optimizer.fused=false"), []),
        (("trainer.precision=16-mixed", "optimizer.fused=null"), []),
        (
            ("+trainer.strategy=fsdp", "+trainer.logger=true"),
            ["trainer.strategy ", "trainer.logger "],
        ),
    ],
)
def test_devices_strategies_and_precision(overrides, words):
    found = mistakes(*overrides)
    assert len(found) == len(words)
    assert all(any(mistake.startswith(word) for mistake in found) for word in words)


def test_half_precision_needs_no_other_optimizer_where_nothing_is_clipped():
    """Only clipping does not go with a fused optimizer, and this run does not clip."""
    assert mistakes("trainer.precision=16-mixed", "trainer.gradient_clip_val=null") == []


def test_half_precision_weights_would_round_labels():
    (mistake,) = mistakes("trainer.precision=16-true")
    assert mistake.endswith("use 16-mixed")


@pytest.mark.parametrize("metric", ["isoscore", "mean_cosine", "partition"])
def test_the_headline_must_be_measured(metric):
    assert mistakes(f"metric=[{metric}]", f"monitor.headline=[{metric}]") == []
    (mistake,) = mistakes(f"metric=[{metric}]", f"monitor.headline=[{metric},lid]")
    assert mistake.startswith("monitor.headline=lid is not measured")
    assert f"choose among {metric}, or add it" in mistake


def test_a_headline_without_any_metric():
    (mistake,) = mistakes("metric=[]", "monitor.headline=[isoscore]")
    assert mistake == "monitor.headline=isoscore is not measured; add it to metric=[...]"


def test_missing_values_are_told_alone_and_nothing_is_resolved():
    cfg = compose_run(["encoder=huggingface", "source=local", "data.batch_size=0"])
    with open_dict(cfg):
        cfg.optimizer.lr = "???"
    assert missing_keys(cfg) == ["encoder.name", "optimizer.lr"]
    assert all_mistakes(cfg) == [
        "encoder.name has no value; set encoder.name=...",
        "optimizer.lr has no value; set optimizer.lr=...",
    ]


@pytest.mark.parametrize("group", ["task", "encoder", "pooling", "isotropy", "optimizer"])
@pytest.mark.parametrize("content", [None, {}, {"width": 3}, {"_target_": None}, {"_target_": ""}])
def test_a_group_without_a_target_is_told(group, content):
    cfg = base()
    with open_dict(cfg):
        cfg[group] = content
    assert f"{group} must be one of its options, with a _target_" in all_mistakes(cfg)


@pytest.mark.parametrize("content", ["text", 5, [1], {"_target_": 5}, {"_target_": ["a"]}])
@pytest.mark.parametrize("group", ["pooling", "trainer"])
def test_a_group_of_another_kind_is_told(group, content):
    cfg = base()
    with open_dict(cfg):
        cfg[group] = content
    assert any(group in mistake for mistake in all_mistakes(cfg))


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_forbidden_target_is_found_at_any_depth(depth):
    cfg = base()
    node, path = {"_target_": "os.getcwd"}, "objective.x"
    for _ in range(depth):
        node, path = {"inner": [node]}, f"{path}.inner[0]"
    with open_dict(cfg):
        cfg.objective.x = node
    assert [
        m for m in all_mistakes(cfg) if m.startswith(f"{path}._target_=os.getcwd is not allowed")
    ]


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


def test_unresolved_references_are_told_by_key_and_variable():
    cfg = compose_run(
        ["encoder=huggingface", "encoder.name=${oc.env:MODEL_OF_MINE}", "source=demo"]
    )
    assert all_mistakes(cfg) == ["encoder reads the environment variable MODEL_OF_MINE; set it"]


@pytest.mark.parametrize("key", ["seed", "threads", "data.batch_size"])
@pytest.mark.parametrize("value", ["${oc.env:NOT_SET}", "${nothing}", "${oc.env:A_WORD}"])
def test_unresolved_numbers_are_told(monkeypatch, key, value):
    """`OmegaConf.select` raises where the value is compared with the least."""
    monkeypatch.setenv("A_WORD", "word")
    found = mistakes(f"{key}={value}")
    assert found
    assert key.partition(".")[0] in found[0]


def test_every_mistake_of_different_rules_is_told_once():
    found = mistakes(
        *("data.batch_size=0", "threads=0", "site=[layer_0]", "rows=no_special"),
        *("trainer.devices=0", "monitor.headline=[x]", "optimizer.lr=-1"),
        *("training.warmup_fraction=2", "+nothing=1", "+data.nothing=1"),
    )
    starts = [
        *("a run has no key nothing", "data has no key nothing", "optimizer.lr must be at least 0"),
        *("data.batch_size must be at least 1", "threads must be"),
        *("training.warmup_fraction", "site must be pooled", "monitor.headline=x is not measured"),
        "trainer.devices must be",
    ]
    # a layer site has token rows, so rows=no_special is no mistake of its own
    assert len(found) == len(starts), found
    for start in starts:
        assert sum(mistake.startswith(start) for mistake in found) == 1, start


def test_a_refusal_changes_nothing_and_lists_the_mistakes():
    cfg = compose_run([*BASE, "data.batch_size=0", "threads=0"])
    before = plain(cfg)
    with pytest.raises(ValueError, match=r"data\.batch_size") as caught:
        check(cfg)
    assert str(caught.value).splitlines() == mistakes_in(cfg)
    assert plain(cfg) == before
