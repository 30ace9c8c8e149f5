"""What a configuration may name."""

import sys

import lightning_fabric.loggers
import pytest
import pytorch_lightning.loggers
import torch

from isotrain.config.targets import is_allowed, targets
from tests.parts import shipped_targets

SHIPPED = shipped_targets()


def test_what_is_shipped_is_allowed():
    assert [target for target in SHIPPED if not is_allowed(target)] == []


@pytest.mark.parametrize("module", [torch.optim, pytorch_lightning.loggers])
def test_the_names_that_a_pattern_allows_are_optimizers_and_loggers(module):
    kinds = (torch.optim.Optimizer, lightning_fabric.loggers.Logger)
    allowed = [name for name in dir(module) if is_allowed(f"{module.__name__}.{name}")]
    assert len(allowed) >= 4
    for name in allowed:
        assert issubclass(getattr(module, name), kinds), name


@pytest.mark.parametrize(
    "target",
    [
        *("", "isotrain.", "ClsPooling", "os.system", "torch.load", "isotrain.model.pooling"),
        # imported in a module of the package, not defined there
        *("isotrain.build.instantiate", "isotrain.runs.record.subprocess.run"),
        # defined there, but inside of something
        *("isotrain.model.pooling.ClsPooling.__init__", "isotrain.model.pooling.__dict__"),
        # near misses of the patterns
        *("torch.optim.adamw", "torch.optim.AdamW.step", "torch.optim.AdamW\n"),
        *("torchxoptim.AdamW", "transformers.get_schedulers", "pytorch_lightning.loggers.wandb"),
        # like the name of the package
        *("isotrainx.model.pooling.ClsPooling", "../isotrain.model.pooling.ClsPooling"),
    ],
)
def test_nothing_else_is_allowed(target):
    assert not is_allowed(target)


def test_a_users_package_is_neither_allowed_nor_imported_without_the_variable(package):
    module = package("class Part:\n    pass\n", init="raise RuntimeError('imported')\n")
    assert not is_allowed(f"{module}.Part")
    assert module.partition(".")[0] not in sys.modules


@pytest.mark.parametrize("allow", ["{}", "other,{}", " {} , other", "{},", ",,{}"])
def test_a_users_package_is_allowed_by_the_variable(package, monkeypatch, allow):
    module = package("def part(x: int):\n    pass\n")
    monkeypatch.setenv("ISOTRAIN_ALLOW", allow.format(module.partition(".")[0]))
    assert is_allowed(f"{module}.part")
    assert module not in sys.modules  # judged by its name, not run
    assert not is_allowed(f"{module}._part")


@pytest.mark.parametrize("allow", ["", ",", "other", "{}x", "a_users", "*", "{}.parts.part"])
def test_the_variable_allows_whole_names_of_packages_alone(package, monkeypatch, allow):
    module = package("def part():\n    pass\n")
    monkeypatch.setenv("ISOTRAIN_ALLOW", allow.format(module.partition(".")[0]))
    assert not is_allowed(f"{module}.part")


def test_every_node_with_a_target_is_found_whatever_it_lies_in():
    inner = {"_target_": "inner"}
    tree = {"_target_": "top", "a": [[{"b": inner}], inner], "c": {"_args_": [inner]}, "d": 3}
    found = [(path, node["_target_"]) for path, node in targets(tree)]
    assert found == [
        ("", "top"),
        ("a[0][0].b", "inner"),
        ("a[1]", "inner"),
        ("c._args_[0]", "inner"),
    ]
