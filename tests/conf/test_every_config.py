"""Every file of the config tree composes, names what exists, and agrees with the code."""

import importlib
import inspect
import itertools
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

import isotrain
from isotrain.config.analysis import AnalysisConfig
from isotrain.config.check import check
from isotrain.config.compose import plain
from isotrain.config.parts import check_recorded, parts_of
from isotrain.config.schema import RunConfig
from tests.parts import WITHOUT_LOSS
from tests.parts import target as target_of

CONF = Path(__file__).parents[2] / "conf"
SUPPLIED = {  # arguments that isotrain gives itself, by group
    "isotropy": {"width"},
    "freezing": {"encoder", "steps_per_epoch", "n_steps"},
    "peft": {"encoder"},
    "objective": {"width", "n_blocks"},
    "step": {"model", "n_views", "reads_start"},
    "optimizer": {"params"},
    "schedule": {"optimizer", "num_warmup_steps", "num_training_steps"},
    "metric": {"x", "labels", "groups", "reference", "positives", "examples"},
    "logger": {"save_dir", "name"},
    "source/hub": {"split", "split_seed", "hub", "name", "revision"},  # of data.hub
}
MULTI = ("metric", "objective", "logger", "callbacks")  # groups that take a list
# Files that deliberately differ from the Python defaults of their target, and where.
PRESETS = {
    "encoder/bert_base": {"revision"},
    "encoder/distilbert": {"revision"},
    "encoder/gpt2": {"revision"},
    "encoder/roberta_base": {"revision"},
}
# What a file needs beside it.
NEEDED = {
    "encoder/huggingface": ["encoder.name=bert-base-cased"],
    "encoder/static": ["encoder.path=vectors.txt"],
    **{f"task/{name}": ["objective=[simcse]"] for name in WITHOUT_LOSS},
}
OPTIONS = sorted(
    f"{file.parent.name}/{file.stem}"
    for file in CONF.glob("*/*.yaml")
    if file.parent.name not in ("studies", "searches", "analysis")  # no part of one run
)
OF_PARTS = [name for name in OPTIONS if not name.startswith("speed/")]  # a section of keys


def options(group):
    return [name for name in OPTIONS if name.startswith(group + "/")]


@pytest.fixture
def with_option(composed, monkeypatch):
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", "/data")

    def compose_option(name):
        group, option = name.split("/")
        override = f"{group}=[{option}]" if group in MULTI else f"{group}={option}"
        return composed(override, *NEEDED.get(name, []))

    return compose_option


@pytest.mark.parametrize("name", OF_PARTS)
def test_each_file_composes_names_what_is_allowed_and_passes_the_check(with_option, name):
    cfg = with_option(name)
    group, option = name.split("/")
    found = list(parts_of(plain(cfg)))
    check_recorded(plain(cfg))
    assert len(found) >= 11  # task, encoder, pooling, isotropy, freezing, optimizer, ...
    for path, node in found:
        target = node["_target_"]
        if group == path.split(".")[0]:
            assert callable(get_object(target)), path
    check(cfg)
    if group in MULTI:
        assert list(cfg[group]) == [option]
    elif group != "experiment":
        assert cfg[group]["_target_"] == target_of(group, option)


def component(cfg, name):
    """The node of a file that is bound to a signature."""
    group, option = name.split("/")
    node = cfg[group][option] if group in MULTI else cfg[group]
    return node["function"] if group == "metric" else node


BOUND = [name for name in OF_PARTS if name.split("/")[0] not in ("experiment", "trainer")]


def of_file(value):
    """A default or a value of a file: lists as tuples, a part as its arguments."""
    if type(value).__module__.startswith("isotrain.geometry."):
        return vars(value)
    if isinstance(value, dict):
        return {key: of_file(x) for key, x in value.items() if key != "_target_"}
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("name", BOUND)
def test_keys_and_values_agree_with_the_signature(with_option, name):
    node = OmegaConf.to_container(component(with_option(name), name), resolve=True)
    group, _option = name.split("/")
    if not node["_target_"].startswith("isotrain."):
        assert group in ("optimizer", "schedule", "logger", "callbacks")
        accepted = inspect.signature(get_object(node["_target_"])).parameters
        assert set(node) - {"_target_", "_partial_"} <= set(accepted)
        return
    parameters = {
        parameter.name: parameter
        for parameter in inspect.signature(get_object(node["_target_"])).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)  # nn.Module's
    }
    keys = set(node) - {"_target_", "_partial_"}
    supplied = SUPPLIED.get(name, SUPPLIED.get(group, set()))
    assert not keys & supplied
    assert keys | (supplied & set(parameters)) == set(parameters)
    differing = {
        key
        for key in keys
        if parameters[key].default is not inspect.Parameter.empty
        and of_file(parameters[key].default) != of_file(node[key])
    }
    for part in (node[key] for key in keys):
        if isinstance(part, dict) and "_target_" in part:
            named = set(inspect.signature(get_object(part["_target_"])).parameters)
            assert set(part) - {"_target_"} == named
    raw = OmegaConf.load(CONF / f"{name}.yaml")
    if "defaults" in raw:  # a preset: it differs in what it says, and in nothing else
        assert differing or "_target_" in raw
        while "defaults" in raw:
            differing -= set(raw)
            raw = OmegaConf.load(CONF / group / f"{raw.defaults[0]}.yaml")
        assert differing == set()
    else:
        assert differing == PRESETS.get(name, set())
    # What build.py completes is partial; everything else is made at once.
    assert bool(node.get("_partial_")) == (bool(supplied) and group not in ("objective", "source"))


def public_components():
    """`module.Name` of every layer and objective of the package."""
    root = Path(isotrain.__file__).parent
    for package in ("transforms", "objectives"):
        for file in sorted((root / package).glob("[a-z]*.py")):
            if file.stem == "base":
                continue
            module = importlib.import_module(f"isotrain.{package}.{file.stem}")
            for name, value in vars(module).items():
                if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
                    continue
                marks = {"transforms": "fit", "objectives": "n_views"}
                is_made = inspect.isclass(value) and not inspect.isabstract(value)
                if is_made and hasattr(value, marks[package]):
                    yield f"{module.__name__}.{name}"


def test_every_layer_and_objective_has_a_file(with_option):
    named = {
        component(with_option(name), name)["_target_"]
        for group in ("isotropy", "objective")
        for name in options(group)
    }
    found = set(public_components())
    assert {"isotrain.objectives.cosreg.CosReg", "isotrain.transforms.identity.Identity"} <= found
    assert named == found


def test_every_metric_has_a_file_of_its_name():
    folder = Path(isotrain.__file__).parent / "metrics"
    files = {file.stem for file in folder.glob("[a-z]*.py")} - {"suite"}
    files -= {"alignment"}  # of positives, which a run does not have
    assert files == {Path(name).name for name in options("metric")}
    for name in files:
        module = importlib.import_module(f"isotrain.metrics.{name}")
        target = OmegaConf.load(CONF / "metric" / f"{name}.yaml")[name].function._target_
        assert target.startswith(module.__name__ + ".")
        assert next(iter(inspect.signature(getattr(module, name)).parameters)) == "x"


def test_a_file_opens_with_what_it_is():
    for name in OPTIONS:
        if not name.startswith("experiment/"):
            assert re.match(r"# \S", (CONF / f"{name}.yaml").read_text(encoding="utf-8")), name


def test_every_key_of_a_layer_is_explained():
    for name in options("isotropy"):
        lines = (CONF / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        keys = [line for line in lines if re.match(r"\s*[a-z]\w*:", line)]
        assert [line for line in keys if " # " not in line] == [], name
        if name != "isotropy/none":
            assert keys, name


@pytest.mark.parametrize(("name", "config"), [("train", RunConfig), ("analyze", AnalysisConfig)])
def test_a_main_file_agrees_with_its_schema_and_explains_every_key(name, config):
    file = CONF / f"{name}.yaml"
    cfg, schema = OmegaConf.load(file), OmegaConf.structured(config)
    for entry in fields(config):
        default = schema[entry.name]
        if OmegaConf.is_missing(schema, entry.name) or entry.name not in cfg:
            continue
        if is_dataclass(OmegaConf.get_type(schema, entry.name)):
            assert set(cfg[entry.name]) == {f.name for f in fields(OmegaConf.get_type(default))}
        assert plain(OmegaConf.merge({"v": default}, {"v": cfg[entry.name]})) == plain(
            OmegaConf.create({"v": default})
        ), entry.name
    groups = {next(iter(d)) for d in cfg.defaults if not isinstance(d, str)}
    assert set(cfg) - {"defaults", "hydra"} <= {entry.name for entry in fields(config)}
    explained = {entry.name for entry in fields(config)} - set(cfg)
    assert explained == {g for g in groups if not g.startswith("override")}
    for line in file.read_text(encoding="utf-8").splitlines():
        assert " # " in line or not re.match(r"[a-z]\w*: \S", line), line


def test_the_comments_of_the_main_file_list_the_options():
    """A comment `a | b | c` beside a group names options that exist."""
    seen = 0
    for line in (CONF / "train.yaml").read_text(encoding="utf-8").splitlines():
        match = re.match(r"\s+- (\w+): \S+ +# (.*\|.*)", line)
        if match:
            listed = {part.split()[0] for part in match[2].split("|")}
            assert listed <= {name.split("/")[1] for name in options(match[1])}, match[1]
            seen += 1
    assert seen >= 8


def methods_of(command):
    """The override lists that a command line of an experiment file asks for, sweeps expanded."""
    words = [word for word in command.split() if "=" in word]
    choices = [
        [f"{key}={value}" for value in ([text] if text.startswith("[") else text.split(","))]
        for key, _, text in (word.partition("=") for word in words)
    ]
    return [list(method) for method in itertools.product(*choices)]


def test_the_command_of_every_experiment_composes_and_builds_its_layers(composed):
    n_methods = 0
    for file in (CONF / "experiment").glob("*.yaml"):
        line = next(li for li in file.read_text("utf-8").splitlines() if "Command:" in li)
        command = line.split("Command:")[1]
        if "train.py" not in command:
            continue
        for method in methods_of(command):
            cfg = composed(*method)
            check(cfg)
            assert instantiate(cfg.isotropy)(width=16) is not None
            n_methods += 1
    assert n_methods >= 4
