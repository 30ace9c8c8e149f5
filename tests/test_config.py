"""The typed root, the check before anything heavy, and the hash that names a run."""

from __future__ import annotations

import pytest
from hydra.errors import ConfigCompositionException

from isotrain.config.compose import content_hash, plain
from isotrain.config.targets import targets
from tests.judge import check


def changed(composed, *overrides):
    return content_hash(composed(*overrides)) != content_hash(composed())


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", "/data")


@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "threads=1",
        "site=[tokens]",
        "rows=no_special",
        "task=rte",
        "isotropy=mean",
        "encoder=tiny",
        "optimizer.lr=1e-4",
        "data.batch_size=31",
        "data.batching=random",
        "source=demo",
        "objective=[cosreg]",
        "trainer.max_steps=5",
        "training.warmup_fraction=0.2",
        "trainer.log_every_n_steps=3",  # which rows metrics.jsonl has
    ],
)
def test_the_hash_changes_with_what_a_run_computes(composed, override):
    assert changed(composed, override)


@pytest.mark.parametrize(
    "override",
    [
        "logger=[wandb]",
        "output_dir=/elsewhere",
        "rerun=true",
        "hydra.job.name=x",
        "seed=0",
        "checkpoint.every_steps=7",
        "checkpoint.final=false",
        "monitor.headline=[partition]",
        "cache_dir=null",
    ],
)
def test_the_hash_does_not_change_with_place_and_logging(composed, override):
    assert not changed(composed, override)


def test_the_hash_is_the_same_whatever_the_order_of_overrides(composed):
    one = content_hash(composed("seed=3", "data.batch_size=4"))
    two = content_hash(composed("data.batch_size=4", "seed=3"))
    assert one == two
    int(one, 16)


@pytest.mark.parametrize(
    "override",
    ["seed=one", "rows=none", "data.batching=sorted", "data.batch_size=1.5", "site=pooled"],
)
def test_types_are_checked(composed, override):
    with pytest.raises(ConfigCompositionException):
        composed(override)


@pytest.mark.parametrize("override", ["sed=1", "data.bach_size=2"])
def test_unknown_keys_are_refused(composed, override):
    with pytest.raises(ConfigCompositionException):
        composed(override)


@pytest.mark.parametrize(
    ("override", "hint"), [("+sed=1", "seed"), ("+data.bach_size=2", "batch_size")]
)
def test_unknown_keys_that_a_plus_lets_through_are_refused(composed, override, hint):
    with pytest.raises(ValueError, match=f"did you mean {hint}"):
        check(composed(override))


def test_a_shipped_configuration_passes(composed):
    check(composed())


def test_every_mistake_is_told_at_once(composed):
    cfg = composed(
        "encoder._target_=os.system",
        "optimizer._target_=mymodule.Adam",
        "site=[pooled,pooled]",
        "rows=no_special",
    )
    with pytest.raises(ValueError, match=r"encoder\._target_=os\.system is not allowed") as caught:
        check(cfg)
    mistakes = str(caught.value).splitlines()
    assert len(mistakes) >= 4
    assert "ISOTRAIN_ALLOW" in mistakes[0]
    assert "optimizer._target_=mymodule.Adam" in mistakes[1]
    assert "site must name each place once" in mistakes[2]
    assert "rows=no_special" in mistakes[3]


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "torch.load",
        "isotrainer.evil",
        "subprocess.run",
        "hydra.utils.call",
        # Names that a module of the package merely imported are not the package's own.
        "isotrain.run.os.system",
        "isotrain.run.subprocess.run",
        "torch.optim.adam.torch.load",
        "transformers.get_scheduler.evil",
        "pytorch_lightning.loggers.logger.os.system",
    ],
)
def test_targets_outside_the_list_are_refused(composed, target):
    with pytest.raises(ValueError, match="is not allowed"):
        check(composed(f"encoder._target_={target}"))


def test_targets_are_found_at_any_depth():
    tree = {"a": {"_target_": "one", "b": [{"_target_": "two"}, {"c": {"_target_": "three"}}]}}
    assert [(path, node["_target_"]) for path, node in targets(tree)] == [
        ("a", "one"),
        ("a.b[0]", "two"),
        ("a.b[1].c", "three"),
    ]


def test_no_site_is_refused(composed):
    with pytest.raises(ValueError, match="site"):
        check(composed("site=[]"))


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (("site=[pooled]", "pooling=mean"), "has none; add tokens or layer_k"),
        (("site=[tokens]", "pooling=cls"), "leaves CLS untouched"),
        (("site=[tokens]", "pooling=mean"), None),
        # At a lower block the other tokens do reach CLS, through the attention above it.
        (("site=[layer_1]", "pooling=cls"), None),
    ],
)
def test_rows_that_would_change_nothing_are_refused(composed, overrides, wanted):
    cfg = composed("rows=no_special", *overrides)
    if wanted is None:
        check(cfg)
    else:
        with pytest.raises(ValueError, match=wanted):
            check(cfg)


def test_a_missing_value_is_a_mistake_like_others(composed):
    with pytest.raises(ValueError, match=r"encoder\.name"):
        check(composed("encoder=huggingface"))


def test_a_missing_environment_variable_is_named(composed, monkeypatch):
    monkeypatch.delenv("ISOTRAIN_DATA_DIR")
    with pytest.raises(ValueError, match="ISOTRAIN_DATA_DIR"):
        check(composed("source=local"))


def test_a_headline_that_is_not_measured_is_refused_before_anything_is_built(composed):
    with pytest.raises(ValueError, match=r"monitor\.headline"):
        check(composed("metric=[partition]", "monitor.headline=[isoscore]"))


def test_plain_resolves_and_names_enumerations(composed):
    content = plain(composed("rows=no_special", "seed=5", "isotropy=mean"))
    assert content["rows"] == "no_special"
    assert content["isotropy"]["seed"] == 5
    assert type(content["site"]) is list
