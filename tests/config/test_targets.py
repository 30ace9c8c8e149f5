"""What a configuration may name, and what the source of a target tells about it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import lightning_fabric.loggers
import pytest
import pytorch_lightning.loggers
import torch
from hydra.utils import get_object
from omegaconf import OmegaConf

import isotrain
from isotrain.config.targets import class_constant, is_allowed, module_call, signature, targets

ROOT = Path(isotrain.__file__).parents[1]
FOLDERS = ("tasks", "encoders", "transforms", "metrics", "objectives")  # and poolers.py


def targets_of_the_files():
    found = set()
    for file in (ROOT / "conf").glob("*/*.yaml"):
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        found |= {node["_target_"] for _path, node in targets(content)}
    return sorted(found)


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


SHIPPED = targets_of_the_files()
LIBRARY = [*optimizers(), "pytorch_lightning.Trainer", "transformers.get_scheduler"]


def test_there_are_targets():
    assert len(SHIPPED) >= 25
    assert set(LIBRARY) >= {"torch.optim.AdamW", "torch.optim.SGD", "pytorch_lightning.Trainer"}
    assert len(list(parts_of_the_package())) >= 30


@pytest.mark.parametrize("target", sorted({*SHIPPED, *LIBRARY, *parts_of_the_package()}))
def test_the_signature_read_from_source_is_that_of_the_object(target):
    found, thing = signature(target), get_object(target)
    if found is None:  # not for the source to say
        assert inspect.isclass(thing)
        is_generated = dataclasses.is_dataclass(thing) or "__init__" not in vars(thing)
        assert is_generated
        return
    parameters = inspect.signature(thing).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if inspect.isclass(thing) and "__init__" not in vars(thing):
        named, parameters = [], []  # those of object and of torch's modules take nothing
    assert set(found.arguments) == {p.name for p in named}
    assert found.required == {p.name for p in named if p.default is p.empty}
    assert found.takes_any == any(p.kind is p.VAR_KEYWORD for p in parameters)


@pytest.mark.parametrize("target", [*SHIPPED, "torch.optim.AdamW", "pytorch_lightning.Trainer"])
def test_annotations_are_those_of_the_object(target):
    found = signature(target)
    for name, annotation in (found.arguments if found else {}).items():
        written = inspect.signature(get_object(target)).parameters[name].annotation
        assert (annotation is None) == (written is inspect.Parameter.empty)
        if isinstance(written, str):
            assert ast.unparse(annotation) == ast.unparse(ast.parse(written, mode="eval").body)


@pytest.mark.parametrize("target", SHIPPED)
def test_what_is_shipped_is_allowed(target):
    assert is_allowed(target)


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
        *("", ".", "..", "isotrain", "isotrain.", ".isotrain", "isotrain.poolers", "ClsPooling"),
        *("os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "runpy.run_path"),
        *("torch.load", "torch.hub.load", "pickle.loads", "hydra.utils.instantiate"),
        # imported in a module of the package, not defined there
        *("isotrain.build.instantiate", "isotrain.record.subprocess", "isotrain.tasks.wic.Any"),
        *("isotrain.poolers.nn", "isotrain.poolers.nn.Module", "isotrain.poolers.torch.load"),
        "isotrain.record.subprocess.run",
        # defined there, but inside of something
        *("isotrain.poolers.ClsPooling.forward", "isotrain.tasks.rte.RTE.load"),
        *(
            "isotrain.poolers.ClsPooling.__init__",
            "isotrain.poolers.ClsPooling.__init__.__globals__",
        ),
        *("isotrain.poolers.__builtins__", "isotrain.poolers.__builtins__.eval"),
        *("isotrain.poolers.__loader__", "isotrain.poolers.__dict__", "isotrain.__path__"),
        *("isotrain.tasks.rte.DATA", "isotrain.config.targets.ALLOWED_TARGETS"),
        # near misses of the patterns
        *("torch.optim.adamw", "torch.optim.lr_scheduler.LambdaLR", "torch.optim.AdamW.step"),
        *("torch.optim.AdamW\n", "torch.optim.AdamW ", "xtorch.optim.AdamW", "torchxoptim.AdamW"),
        *("transformers.get_schedulers", "transformers.AutoModel.from_pretrained"),
        *("pytorch_lightning.Trainer.fit", "pytorch_lightning.LightningModule"),
        *("pytorch_lightning.loggers.csv_logs.os.system", "pytorch_lightning.loggers.wandb"),
        # like the name of the package
        *("isotrainx.poolers.ClsPooling", "isotrain/poolers.ClsPooling", "isotrain-x.a"),
        *("../isotrain.poolers.ClsPooling", "isotrain..poolers.ClsPooling", "isotrain.poolers:x"),
    ],
)
def test_nothing_else_is_allowed(target):
    assert not is_allowed(target)


@pytest.mark.parametrize(
    "target",
    [
        "isotrain.study.runner._start",
        "isotrain.study.runner.run_study",
        "isotrain.cli.main",
        "isotrain.cli._in_a_process",
        "isotrain.demo.demo",
        "isotrain.run.run",
        "isotrain.build.build",
        "isotrain.results.write_json",
        "isotrain.config.compose.compose_run",
        "isotrain.config.compose.read_job",
        "isotrain.config.compose.write_job",
        "isotrain.training.checkpoints.load_resume_point",
    ],
)
def test_what_is_no_part_of_a_run_is_not_allowed(target):
    assert not is_allowed(target)


def test_a_users_package_is_neither_allowed_nor_imported_without_the_variable(package):
    module = package("class Part:\n    pass\n", init="raise RuntimeError('imported')\n")
    assert not is_allowed(f"{module}.Part")
    assert signature(f"{module}.Part") is None
    assert class_constant(f"{module}.Part", "n_spans") is None
    assert module_call(module, "DATA") == {}
    assert module.partition(".")[0] not in sys.modules


@pytest.mark.parametrize("allow", ["{}", "other,{}", " {} , other", "{},", ",,{}"])
def test_a_users_package_is_allowed_by_the_variable(package, monkeypatch, allow):
    module = package("import os\nfrom os import system\ndef part(x: int):\n    pass\n")
    monkeypatch.setenv("ISOTRAIN_ALLOW", allow.format(module.partition(".")[0]))
    assert is_allowed(f"{module}.part")
    assert signature(f"{module}.part").required == {"x"}
    assert module not in sys.modules  # read, not run
    for imported in ("system", "os", "os.system", "os.getcwd", "part.__globals__"):
        assert not is_allowed(f"{module}.{imported}")


@pytest.mark.parametrize("allow", ["", ",", "other", "{}x", "a_users", "*", "{}.parts.part"])
def test_the_variable_allows_whole_names_of_packages_alone(package, monkeypatch, allow):
    module = package("def part():\n    pass\n")
    monkeypatch.setenv("ISOTRAIN_ALLOW", allow.format(module.partition(".")[0]))
    assert not is_allowed(f"{module}.part")


def test_allowing_a_package_allows_no_other(package, monkeypatch):
    one, two = package("def part():\n    pass\n"), package("def part():\n    pass\n")
    monkeypatch.setenv("ISOTRAIN_ALLOW", one.partition(".")[0])
    assert is_allowed(f"{one}.part")
    assert not is_allowed(f"{two}.part")
    assert not is_allowed("os.system")


def test_asking_about_a_name_inside_a_module_imports_nothing_heavy():
    """Looking for `isotrain.run.os` imports `isotrain.run`, seconds of torch."""
    code = (
        "import sys; from isotrain.config.targets import is_allowed\n"
        "assert not is_allowed('isotrain.run.os.system')\n"
        "print(sorted({'torch', 'transformers', 'pytorch_lightning'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert found.stdout.strip() == "[]"


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
    assert found["n_spans"] == getattr(thing, "n_spans", None)


@pytest.mark.parametrize("target", TASKS)
def test_keywords_of_a_call_are_those_of_the_object(target):
    module = target.rpartition(".")[0]
    data = importlib.import_module(module).DATA
    found = module_call(module, "DATA")
    assert {"name", "hub_id", "hub_revision", "target"} <= set(found) <= set(data._fields)
    for field, value in found.items():
        assert value is None or value == getattr(data, field), field
    for field in ("name", "hub_id", "hub_revision", "target", "folders"):
        assert found.get(field, ()) == getattr(data, field)


@pytest.mark.parametrize("name", ["data", "RTE", "Any", "no_such_name", "__doc__", ""])
def test_what_is_no_call_has_no_keywords(name):
    assert module_call("isotrain.tasks.rte", name) == {}


def test_constants_and_calls_of_unknown_places_are_none():
    assert class_constant("isotrain.no.such.Task", "n_spans") is None
    assert class_constant("isotrain.tasks.encoding.encode_pairs", "n_spans") is None
    assert class_constant("os.path", "sep") is None
    assert module_call("isotrain.no.such", "DATA") == {}
    assert module_call("", "DATA") == {}


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
