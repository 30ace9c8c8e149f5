"""Nodes against the signatures of their imported targets, and what a record may name."""

import re
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch.nn import Module

from isotrain.config.parts import argument_errors, check_recorded, load, make, parts_of
from isotrain.training.monitor.measurement import value_names
from tests.parts import shipped_targets

ADAMW = {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 1e-3}
TRAINER = {"_target_": "pytorch_lightning.Trainer"}


@pytest.mark.parametrize(
    ("annotation", "fitting", "wrong"),
    [
        ("int", [0, -3, 10**12], [True, 1.0, "1", None, [1]]),
        ("float", [0.5, 1], [float("inf"), float("nan"), True, "0.5", None, [0.5]]),
        ("str", ["", "a"], [1, None, True, ["a"]]),
        ("bool", [True, False], [0, 1, "true", None]),
        ("None", [None], [0, "", False]),
        ("int | None", [1, None], [True, "1", 1.5]),
        ("Optional[Union[int, float]]", [1, 1.5, None], ["1", True]),
        ("float | str | None", [1, 1.5, "a", None], [True, [1]]),
        ("Literal['a', 'b']", ["a", "b"], ["c", "", None, 1]),
        ("Literal['a', 'b'] | None", ["a", None], ["c"]),
        ("Annotated[int, 'a note']", [1], [True, "1", 1.5]),
        ("Annotated[float, Field(ge=0)]", [0.5], ["1", None]),
        ("Tensor", [], [1, "x", None]),
        ("Any", [1, "a", None, [1], {"b": 2}], []),
        ("list[int]", [[1], []], [["a"], [1, "a"], None, 3, "1"]),
        ("Sequence[str] | None", [["a"], [], None], [[1], [None], {"a": 1}]),
        ("Literal['all'] | Sequence[str]", ["all", ["a"]], [[1], None]),
        ("dict[str, int]", [{"a": 1}], [None, 3, [1]]),
        ("tuple[float, float]", [[0.1, 2]], [None, 3, {"a": 1}]),
        ("Path", ["a"], []),  # written as a text
        ("NotThere", [1, "a", None], []),  # a name for type checkers alone: nothing to judge by
        ("Annotated[int, Field(ge=1)] | None", [1, None], ["a"]),
    ],
)
def test_values_by_annotation(package, annotation, fitting, wrong):
    module = package(
        f"""
        from __future__ import annotations
        from collections.abc import Sequence
        from pathlib import Path
        from typing import Annotated, Any, Literal, Optional, Union
        from torch import Tensor
        from pydantic import Field
        def part(x: {annotation} = 0): ...
        """
    )

    def errors(value):
        return argument_errors("task", {"_target_": f"{module}.part", "x": value})

    assert [v for v in fitting if errors(v)] == []
    for value in wrong:
        (error,) = errors(value)
        assert error.startswith("task.x must be ")
        assert error.endswith(f", got {value!r}"), error


def test_any_key_goes_to_a_target_that_takes_any(package):
    module = package("def part(x: int, **more): ...")
    node = {"_target_": f"{module}.part", "x": 1, "y": "z"}
    assert argument_errors("task", node) == []
    assert argument_errors("task", {**node, "x": "z"}) == [
        "task.x must be a valid integer, got 'z'"
    ]


def test_a_key_of_a_part_that_takes_none_is_rejected(monkeypatch):
    """A layer of torch without `__init__` has that of `nn.Module`, which takes anything."""
    own = Module.__init__  # torch.compile puts another in its place
    monkeypatch.setattr(Module, "__init__", lambda self, *args, **more: own(self, *args, **more))
    node = {"_target_": "isotrain.model.pooling.ClsPooling", "width": 1}
    assert len(argument_errors("pooling", node)) == 1


@pytest.mark.parametrize(
    ("text", "legal", "required"),
    [
        ("def part(): ...", "", ""),
        ("def part(a, b=1): ...", "a b", "a"),
        ("def part(a, *, b, c=1): ...", "a b c", "a b"),
        ("class part:\n    def __init__(self, a, b=1): ...", "a b", "a"),
        ("class part:\n    n = 1", "", ""),
        ("from torch import nn\nclass part(nn.Module):\n    n = 1", "", ""),
        (
            "import dataclasses\n@dataclasses.dataclass\nclass part:\n    a: int\n    b: int = 1",
            "a b",
            "a",
        ),
        (
            "from typing import NamedTuple\nclass part(NamedTuple):\n    a: int\n    b: int = 1",
            "a b",
            "a",
        ),
        (
            "from isotrain.tasks.wic import WiC\nclass part(WiC): ...",
            "form max_length prompt head_dropout",
            "",
        ),
    ],
)
def test_signatures_of_every_form(package, text, legal, required):
    module = package(text)
    target = f"{module}.part"
    found = argument_errors("x", {"_target_": target, "zz": 1})
    (unknown,) = [error for error in found if "is no argument" in error]
    names = unknown.partition("; ")[2].removeprefix("it has ").removeprefix("none").split(", ")
    assert sorted(filter(None, names)) == sorted(legal.split()) or not legal
    node = OmegaConf.create({"x": {"_target_": target}}).x
    if required:
        with pytest.raises(
            ValueError, match=f"x cannot be made: .*missing .*{required.split()[0]}"
        ):
            make(node)
    else:
        make(node)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def (", "SyntaxError: "),
        ("import torch\ntorch.zeros(-1)", "RuntimeError: "),
    ],
)
def test_a_package_that_cannot_be_imported_is_reported(package, text, message):
    """With the message and the line of one's own file, from the check and from Hydra's part."""
    module = package(text)
    node = {"_target_": f"{module}.part"}
    (error,) = argument_errors("task", node)
    assert error.startswith(f"task._target_={module}.part cannot be imported: {message}")
    place = rf"/{module.replace('.', '/')}\.py:{len(text.splitlines())}\)$"
    assert re.search(place, error), error
    with pytest.raises(ValueError, match=re.escape(error.removeprefix("task."))):
        make(OmegaConf.create({"task": node}).task)


@pytest.mark.parametrize(
    ("value", "message"), [("n + 'a'", "unsupported"), ("unknown", r"NameError\(.*'unknown'")]
)
def test_an_error_of_a_constructor_names_its_line(package, value, message):
    module = package(f"class Part:\n    def __init__(self, n):\n        self.x = {value}\n")
    node = OmegaConf.create({"task": {"_target_": f"{module}.Part", "n": 1}}).task
    with pytest.raises(ValueError, match=rf"task cannot be made: {message}.*\.py:3\); give"):
        make(node)


def test_an_error_of_a_metric_names_its_line(package):
    module = package("def part(x):\n    return unknown\n")
    metric = import_module(module).part
    with pytest.raises(ValueError, match=r"metric\.mine, .*'unknown'.*/\w+\.py:2\)"):
        value_names({"mine": metric}, 8, 2)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    )
)
@settings(max_examples=50)
def test_no_value_raises(value):
    for key in ("lr", "fused", "betas", "params", "x", ""):
        assert isinstance(argument_errors("optimizer", {**ADAMW, key: value}), list)
    for key in ("max_epochs", "precision", "accelerator", "x"):
        assert isinstance(argument_errors("trainer", {**TRAINER, key: value}), list)


def test_a_name_that_a_module_lacks_has_its_nearest():
    with pytest.raises(ValueError, match=r"zca has no ZCAA; did you mean ZCA\?"):
        load("isotrain.transforms.zca.ZCAA")


def test_a_value_that_isotrain_sets_is_not_taken_from_the_node():
    node = OmegaConf.create({"isotropy": {"_target_": "isotrain.transforms.zca.ZCA", "width": 3}})
    with pytest.raises(
        ValueError, match=r"isotropy\.width is set by isotrain itself; leave it out"
    ):
        make(node.isotropy, width=2)


def test_known_values_go_to_those_that_name_them(package):
    module = package("def part(n): return n\ndef any(**all): return all\ndef none(): return 0\n")
    for name, found in (("part", 2), ("none", 0)):
        assert make(OmegaConf.create({"_target_": f"{module}.{name}"}), n=2, other=3) == found


def test_every_node_with_a_target_is_listed_whatever_it_lies_in():
    inner = {"_target_": "inner"}
    tree = {"_target_": "top", "a": [[{"b": inner}], inner], "c": {"_args_": [inner]}, "d": 3}
    assert [path for path, _ in parts_of(tree)] == ["", "a[0][0].b", "a[1]", "c._args_[0]"]


# Records


def recorded(target):
    check_recorded({"isotropy": {"_target_": target}})


def test_what_is_shipped_may_be_recorded():
    for target in shipped_targets():
        recorded(target)


@pytest.mark.parametrize(
    "target",
    [
        *("", "isotrain.", "ClsPooling", "os.system", "torch.load", "isotrain.model.pooling"),
        # imported in a module of the package, not defined there
        *("isotrain.build.instantiate", "isotrain.runs.record.subprocess.run"),
        *("isotrain.model.pooling.torch", "isotrain.model.pooling.torch.load"),
        *("isotrain.tasks.wic.Classification", "isotrain.transforms.zca.checked"),
        # defined there, but inside of something
        *("isotrain.model.pooling.ClsPooling.__init__", "isotrain.model.pooling.__dict__"),
        # near misses of the patterns
        *("torch.optim.adamw", "torch.optim.AdamW.step", "torch.optim.AdamW\n"),
        *("torchxoptim.AdamW", "transformers.get_schedulers", "pytorch_lightning.loggers.wandb"),
        # like the name of the package
        *("isotrainx.model.pooling.ClsPooling", "../isotrain.model.pooling.ClsPooling"),
    ],
)
def test_nothing_else_may_be_recorded(target):
    with pytest.raises(ValueError, match=r"may not run|has no|cannot be imported"):
        recorded(target)


def test_a_target_in_a_list_or_behind_a_reference_is_seen(monkeypatch):
    monkeypatch.setenv("A_TARGET", "os.system")
    for content in (
        {"x": [{"y": {"_target_": "os.system"}}]},
        OmegaConf.create({"x": {"_target_": "${oc.env:A_TARGET}"}}),
    ):
        with pytest.raises(ValueError, match=r"_target_=os\.system"):
            check_recorded(content)


@pytest.mark.parametrize("allow", ["", ",", "other", "{}x", "a_users", "*", "{}.parts.part"])
def test_the_variable_allows_whole_names_of_packages_alone(package, monkeypatch, allow):
    module = package("raise RuntimeError('imported')\n")
    monkeypatch.setenv("ISOTRAIN_ALLOW", allow.format(module.partition(".")[0]))
    with pytest.raises(ValueError, match="may not run"):  # and it is not imported
        recorded(f"{module}.part")


@pytest.mark.parametrize("allow", ["{}", "other,{}", " {} , other", "{},", ",,{}"])
def test_a_users_package_is_allowed_by_the_variable(package, monkeypatch, allow):
    module = package("raise RuntimeError('imported')\n")
    monkeypatch.setenv("ISOTRAIN_ALLOW", allow.format(module.partition(".")[0]))
    recorded(f"{module}.part")  # judged by its name, not run
    with pytest.raises(ValueError, match="may not run"):
        recorded(f"{module}._part")


def declare(root, *lines):
    """Metadata of an installed package that declares parts, as pip writes it."""
    folder = root / "site" / "a_users_parts-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: a-users-parts\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("\n".join(["[isotrain.parts]", *lines]))


def test_an_installed_package_allows_exactly_the_parts_that_it_declares(package, tmp_path):
    module = package("raise RuntimeError('imported')\n")
    home = module.partition(".")[0]
    declare(tmp_path, f"part = {module}:part", f"parts = {module}", "x = other.parts:Layer")
    recorded(f"{module}.part")  # judged by its name, not run
    for other in (module, f"{module}.part2", f"{module}.part.call", f"{home}.part", "other.Layer"):
        with pytest.raises(ValueError, match="may not run"):
            recorded(other)
