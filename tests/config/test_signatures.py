"""A node against the signature of its imported target."""

import re
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch.nn import Module

from isotrain.config.signatures import (
    SUPPLIED,
    argument_mistakes,
    constant,
    load,
    parameters_of,
    supplied_mistake,
)
from isotrain.training.monitor.measurement import value_names
from isotrain.training.parts import made
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
def test_values_by_annotation(allowed, annotation, fitting, wrong):
    module = allowed(
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

    def mistakes(value):
        return argument_mistakes("task", {"_target_": f"{module}.part", "x": value})

    assert [v for v in fitting if mistakes(v)] == []
    for value in wrong:
        (mistake,) = mistakes(value)
        assert mistake.startswith("task.x must be ")
        assert mistake.endswith(f", got {value!r}"), mistake


def test_any_key_goes_to_a_target_that_takes_any(allowed):
    module = allowed("def part(x: int, **more): ...")
    node = {"_target_": f"{module}.part", "x": 1, "y": "z"}
    assert argument_mistakes("task", node) == []
    assert argument_mistakes("task", {**node, "x": "z"}) == [
        "task.x must be a valid integer, got 'z'"
    ]


@pytest.mark.parametrize(("group", "keys"), sorted((g, sorted(k)) for g, k in SUPPLIED.items()))
def test_what_isotrain_gives_itself_is_refused_and_not_missed(allowed, group, keys):
    module = allowed(f"def part({', '.join(keys)}): ...")
    node = {"_target_": f"{module}.part"}
    assert argument_mistakes(group, node) == []
    assert argument_mistakes(f"{group}.x.function", node) == []
    for key in keys:
        assert argument_mistakes(group, {**node, key: None}) == [supplied_mistake(f"{group}.{key}")]
    assert len(argument_mistakes("data", node)) == len(keys)


def test_a_key_of_a_part_that_takes_none_is_refused(monkeypatch):
    """A layer of torch without `__init__` has that of `nn.Module`, which takes anything."""
    own = Module.__init__  # torch.compile puts another in its place
    monkeypatch.setattr(Module, "__init__", lambda self, *args, **more: own(self, *args, **more))
    node = {"_target_": "isotrain.model.pooling.ClsPooling", "width": 1}
    assert len(argument_mistakes("pooling", node)) == 1


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
            "from isotrain.tasks.rte import RTE\nclass part(RTE): ...",
            "form max_length head_dropout",
            "",
        ),
    ],
)
def test_signatures_of_every_form(allowed, text, legal, required):
    module = allowed(text)
    target = f"{module}.part"
    found = argument_mistakes("x", {"_target_": target, "zz": 1})
    (unknown,) = [mistake for mistake in found if "is no argument" in mistake]
    names = unknown.partition("; ")[2].removeprefix("it has ").removeprefix("none").split(", ")
    assert sorted(filter(None, names)) == sorted(legal.split()) or not legal
    lacking = [mistake for mistake in found if mistake is not unknown]
    assert lacking == [f"x lacks {name}, which {target} needs" for name in required.split()]


def test_every_shipped_target_can_be_loaded_and_its_annotations_read():
    """Otherwise nothing of a value would be judged; an argument that isotrain gives has none."""
    for target in shipped_targets():
        part = load(target)
        for name, parameter in parameters_of(part).items():
            is_given = any(name in names for names in SUPPLIED.values())
            if is_given or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            node = {"_target_": target, name: object}
            is_judged = parameter.annotation in (parameter.empty, "Any") or any(
                f".{name} " in mistake for mistake in argument_mistakes("none", node)
            )
            assert is_judged, (target, name)


@pytest.mark.parametrize(
    "target",
    [
        *("os.system", "isotrain.run.subprocess.run", "isotrain.model.pooling.torch.load"),
        *("isotrain.model.pooling.torch", "isotrain.model.pooling.nn", "isotrain.tasks.wic.Any"),
        *("isotrain.transforms.zca.Bounds", "isotrain.transforms.zca.checked"),
        *("isotrain.tasks.rte.DATA", "isotrain.tasks.rte.nothing", "torch.optim.Nothing"),
        *("isotrain.model.pooling.ClsPooling.forward", "isotrain.tasks.rte.PairClassification"),
    ],
)
def test_what_a_module_does_not_define_itself_is_not_loaded(target):
    with pytest.raises(ValueError, match=rf"_target_={target}(: .* has no| is not allowed)"):
        load(target)


def test_what_a_users_package_imports_is_not_its_own(allowed):
    module = allowed("import os\nfrom os import system\nPART = print\ndef part(x: int): ...\n")
    assert load(f"{module}.part").__name__ == "part"
    for imported in ("system", "os", "os.system", "os.getcwd", "part.__globals__", "PART", "_x"):
        with pytest.raises(ValueError, match=r"is not allowed|cannot be imported"):
            load(f"{module}.{imported}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def (", "SyntaxError: "),
        ("import torch\ntorch.zeros(-1)", "RuntimeError: "),
    ],
)
def test_a_package_that_cannot_be_imported_is_told(allowed, text, message):
    """With the message and the line of one's own file, from the check and from Hydra's part."""
    module = allowed(text)
    node = {"_target_": f"{module}.part"}
    (told,) = argument_mistakes("task", node)
    assert told.startswith(f"task._target_={module}.part cannot be imported: {message}")
    place = rf"/{module.replace('.', '/')}\.py:{len(text.splitlines())}\)$"
    assert re.search(place, told), told
    with pytest.raises(ValueError, match=re.escape(told.removeprefix("task."))):
        made(OmegaConf.create({"task": node}).task)


@pytest.mark.parametrize(
    ("value", "message"), [("n + 'a'", "unsupported"), ("unknown", r"NameError\(.*'unknown'")]
)
def test_an_error_of_a_constructor_names_its_line(package, value, message):
    module = package(f"class Part:\n    def __init__(self, n):\n        self.x = {value}\n")
    node = OmegaConf.create({"task": {"_target_": f"{module}.Part", "n": 1}}).task
    with pytest.raises(ValueError, match=rf"task cannot be made: {message}.*\.py:3\); give"):
        made(node)


def test_an_error_of_a_metric_names_its_line(package):
    module = package("def part(x):\n    return unknown\n")
    metric = import_module(module).part
    with pytest.raises(ValueError, match=r"metric\.mine, .*'unknown'.*/\w+\.py:2\)"):
        value_names({"mine": metric}, 8, 2)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("n = 4", 4),
        ("m, n = 1, 4", 4),
        ("n = 2 + 2", 4),
        ("n: int", 3),
        ("@property\n    def n(self): ...", None),
    ],
)
def test_the_nearest_class_says_the_constant(allowed, body, value):
    module = allowed(f"class Base:\n    n = 3\nclass part(Base):\n    {body}")
    assert constant(load(f"{module}.part"), "n") == value


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
        assert isinstance(argument_mistakes("optimizer", {**ADAMW, key: value}), list)
    for key in ("max_epochs", "precision", "accelerator", "x"):
        assert isinstance(argument_mistakes("trainer", {**TRAINER, key: value}), list)


def test_a_name_that_a_module_lacks_has_its_nearest():
    with pytest.raises(ValueError, match=r"zca has no ZCAA; did you mean ZCA\?"):
        load("isotrain.transforms.zca.ZCAA")


def test_a_part_within_a_part_is_of_the_annotated_class(allowed):
    module = allowed(
        "from isotrain.transforms.zca import ZCA\ndef mine(inner: ZCA | None = None): ..."
    )
    node = {"_target_": f"{module}.mine"}
    (told,) = argument_mistakes("x", node | {"inner": {"size": 3}})
    assert told == "x.inner must be an instance of ZCA, got {'size': 3}"
    assert (
        argument_mistakes("x", node | {"inner": {"_target_": "isotrain.transforms.zca.ZCA"}}) == []
    )
