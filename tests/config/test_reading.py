"""What the source of a part tells, against what the imported part says."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import sys
import typing
from pathlib import Path

import pytest
import torch
from hydra.utils import get_object

import isotrain
from isotrain.arguments import Bounds
from isotrain.config.binding import binding_mistakes
from isotrain.config.reading import class_calls, class_constant, inherits, signature
from tests.parts import shipped_targets

ROOT = Path(isotrain.__file__).parents[1]
FOLDERS = ("tasks", "encoders", "transforms", "metrics", "objectives")  # and poolers.py


def optimizers():
    kinds = vars(torch.optim).values()
    return sorted(
        f"torch.optim.{kind.__name__}"
        for kind in kinds
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)
    )


def parts_of_the_package():
    """Public functions and classes of the modules that hold what a configuration names."""
    package = ROOT / "isotrain"
    files = [file for name in FOLDERS for file in (package / name).glob("[a-z]*.py")]
    for file in sorted([*files, package / "poolers.py"]):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_":
                yield f"{module}.{node.name}"


SHIPPED = shipped_targets()
LIBRARY = [*optimizers(), "pytorch_lightning.Trainer", "transformers.get_scheduler"]


def test_the_signature_read_from_source_is_that_of_the_object():
    every = {*SHIPPED, *LIBRARY, *parts_of_the_package()}
    assert len(every) > 150
    for target in sorted(every):
        assert_read_as_it_is(target)


def assert_read_as_it_is(target):
    found, thing = signature(target), get_object(target)
    if found is None:  # not for the source to say
        assert inspect.isclass(thing), target
        is_generated = dataclasses.is_dataclass(thing) or "__init__" not in vars(thing)
        assert is_generated, target
        return
    parameters = inspect.signature(thing).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if inspect.isclass(thing):
        made_by = next(kind for kind in thing.__mro__ if "__init__" in vars(kind))
        if made_by in (object, torch.nn.Module):
            named, parameters = [], []  # they take nothing
    assert set(found.arguments) == {p.name for p in named}, target
    assert found.required == {p.name for p in named if p.default is p.empty}, target
    assert found.takes_any == any(p.kind is p.VAR_KEYWORD for p in parameters), target


def test_annotations_are_those_of_the_object():
    arguments = [
        (target, name, annotation)
        for target in (*SHIPPED, "torch.optim.AdamW", "pytorch_lightning.Trainer")
        if (found := signature(target))
        for name, annotation in found.arguments.items()
    ]
    assert len(arguments) > 200
    for target, name, annotation in arguments:
        written = inspect.signature(get_object(target)).parameters[name].annotation
        assert (annotation is None) == (written is inspect.Parameter.empty), (target, name)
        if isinstance(written, str):
            thing = get_object(target)
            made_by = inspect.unwrap(thing.__init__ if inspect.isclass(thing) else thing)
            names = made_by.__globals__
            spelled = eval(ast.unparse(annotation), {**vars(typing), "Bounds": Bounds, **names})
            assert spelled == eval(written, names), (target, name)


@pytest.mark.parametrize(
    ("text", "arguments", "required", "takes_any"),
    [
        ("def part(): ...", "", "", False),
        ("def part(a, b=1): ...", "a b", "a", False),
        ("def part(a, *, b, c=1): ...", "a b c", "a b", False),
        ("def part(a, /, b): ...", "a b", "a b", False),
        ("def part(a=1, /, b=2, *rest, c, **more): ...", "a b c", "c", True),
        ("class part:\n    def __init__(self, a, b=1): ...", "a b", "a", False),
        ("class part:\n    def __init__(self, **more): ...", "", "", True),
        ("class part:\n    n = 1", "", "", False),
        ("def other(): ...\ndef part(a): ...", "a", "a", False),
    ],
)
def test_signatures_of_every_form(package, monkeypatch, text, arguments, required, takes_any):
    module = package(text)
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    found = signature(f"{module}.part")
    assert (set(found.arguments), found.required, found.takes_any) == (
        set(arguments.split()),
        set(required.split()),
        takes_any,
    )


@pytest.mark.parametrize(
    "text",
    [
        "class part(Base): ...",
        "@dataclass\nclass part:\n    a: int",
        "part = print",
        "if True:\n    def part(): ...",
        "async def part(): ...",
        "def other():\n    def part(): ...",
    ],
)
def test_where_the_source_does_not_tell_there_is_no_signature(package, monkeypatch, text):
    module = package(text)
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    assert signature(f"{module}.part") is None


TASKS = [target for target in SHIPPED if ".tasks." in target and not target.endswith("Source")]


@pytest.mark.parametrize("target", TASKS)
def test_constants_of_a_class_are_those_of_the_object(target):
    thing = get_object(target)
    names = {*vars(thing), "n_spans", "no_such_name"}
    found = {name: class_constant(target, name) for name in names}
    for name, value in found.items():
        assert value is None or value == getattr(thing, name), name
    assert found["no_such_name"] is None
    known = getattr(thing, "n_spans", None)
    assert found["n_spans"] == (None if isinstance(known, property) else known)


@pytest.mark.parametrize("target", TASKS)
def test_keywords_of_calls_are_those_of_the_objects(target):
    made = get_object(target)()
    calls = class_calls(target, "data_sets") or class_calls(target, "data_set")
    for data, found in zip(made.data_sets, calls, strict=True):
        assert {"name", "hub_id", "hub_revision", "target"} <= set(found) <= set(data._fields)
        for field, value in found.items():
            assert value is None or value == getattr(data, field), field
        for field in ("name", "hub_id", "hub_revision", "target"):
            assert found[field] == getattr(data, field)
        for field in ("folders", "files"):
            assert found.get(field, data._field_defaults[field]) == getattr(data, field)


@pytest.mark.parametrize("name", ["n_spans", "name", "label", "no_such_name", "__doc__", ""])
def test_what_is_no_call_has_no_keywords(name):
    assert class_calls("isotrain.tasks.rte.RTE", name) == []


def test_constants_and_calls_of_unknown_places_are_none():
    assert class_constant("isotrain.no.such.Task", "n_spans") is None
    assert class_constant("isotrain.tasks.data.encoding.encode_pairs", "n_spans") is None
    assert class_constant("os.path", "sep") is None
    assert class_calls("isotrain.no.such.Task", "data_set") == []
    assert class_calls("", "data_set") == []


BASE = """
from torch import nn

class Base(nn.Module):
    reads, n = "first", 3
    size: int = 5
    other = 1

    def __init__(self, width: int, *, rate=0.5): ...
"""


@pytest.mark.parametrize(
    "text",
    [
        "from .parts import Base\nclass Turned(Base): ...",
        "from {base} import Base as B\nclass Turned(B): ...",
        "from {package} import parts\nclass Turned(parts.Base): ...",
        "import {base}\nclass Turned({base}.Base): ...",
        "import {base} as p\nclass Turned(p.Base): ...",
        "from . import parts\nclass Middle(parts.Base): ...\nclass Turned(Middle): ...",
        "from .parts import Base\nclass Own: ...\nclass Turned(Own, Base): ...",
        "from .parts import Base\nfrom typing import Generic\nclass Turned(Generic[T], Base): ...",
    ],
)
def test_what_a_class_inherits_is_read(package, monkeypatch, text):
    base = package(BASE)
    name = base.partition(".")[0]
    (Path(importlib.util.find_spec(name).origin).parent / "more.py").write_text(
        text.format(base=base, package=name)
    )
    monkeypatch.setenv("ISOTRAIN_ALLOW", name)
    target = f"{name}.more.Turned"
    found = signature(target)
    assert (set(found.arguments), found.required) == ({"width", "rate"}, {"width"})
    constants = {n: class_constant(target, n) for n in ("reads", "n", "size", "other", "no")}
    assert constants == {"reads": "first", "n": 3, "size": 5, "other": 1, "no": None}
    assert inherits(target, f"{base}.Base")
    assert not inherits(target, f"{base}.Bass")
    assert not {base, f"{name}.more"} & set(sys.modules)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("n = 4", 4),
        ("n: int = 4", 4),
        ("m, n = 1, 4", 4),
        ("n = m = 4", 4),
        ("n = 2 + 2", None),
        ("n: int", 3),
        ("@property\n    def n(self): ...", None),
    ],
)
def test_the_nearest_class_says_the_constant(package, monkeypatch, body, value):
    module = package(f"class Base:\n    n = 3\nclass part(Base):\n    {body}")
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    assert class_constant(f"{module}.part", "n") == value


@pytest.mark.parametrize(
    "text",
    [
        "from os import PathLike as Base\nclass part(Base): ...",
        "from somewhere import Base\nclass part(Base): ...",
        "import torch\nclass part(torch.nn.Linear): ...",
        "from .parts import Base\nclass part(Base): ...",  # of itself
        "class part(make()): ...",
    ],
)
def test_a_base_of_others_is_not_read(package, monkeypatch, text):
    module = package(text)
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    assert signature(f"{module}.part") is None
    assert class_constant(f"{module}.part", "n") is None


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("pass", ["stsb"]),
        ("data_set = HERE", ["here"]),
        ("data_set = HERE, there.DATA", ["here", "rte"]),
        ("data_set = OTHER", []),
        ("data_set = HERE.x", []),
        ("data_set = DataSet(name='inline')", []),
    ],
)
def test_calls_are_found_where_their_names_come_from(package, monkeypatch, body, names):
    module = package(
        f"""
        from isotrain.tasks import rte as there
        from isotrain.tasks.stsb import STSB as Base
        HERE, OTHER = DataSet(name="here"), None
        class part(Base):
            {body}
        """
    )
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    assert [call["name"] for call in class_calls(f"{module}.part", "data_set")] == names


def test_a_mistyped_key_of_an_inherited_task_is_told_with_the_right_one(package, monkeypatch):
    module = package("from isotrain.tasks.rte import RTE\nclass Turned(RTE): ...")
    monkeypatch.setenv("ISOTRAIN_ALLOW", module.partition(".")[0])
    node = {"_target_": f"{module}.Turned", "max_lenght": 64, "form": "pair"}
    long, form = binding_mistakes("task", node)
    assert long == f"task.max_lenght is no argument of {module}.Turned; did you mean max_length?"
    assert form.startswith("task.form must be cross or bi, got")
