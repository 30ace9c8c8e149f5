"""The configuration of an analysis: every file of the group, the root, what is rejected."""

import inspect
import re
from copy import deepcopy

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf, open_dict

from isotrain.analysis.published import read_published
from isotrain.config.analysis import ANALYSIS, analysis_hash
from isotrain.config.parts import check_recorded
from tests.judge import errors_of, judged
from tests.parts import CONF, names

NAMES = names("analysis")
BASE = ("encoder=tiny", "source=demo")


@pytest.fixture(scope="module")
def composed():
    """`composed("seed=1", …)`: a configuration that is right."""

    def compose(*overrides):
        cfg, errors = judged([*BASE, *overrides], root="analyze")
        assert errors == []
        return cfg

    return compose


def lines_of(name):
    return (CONF / "analysis" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_composes_and_names_an_analysis(composed, name):
    cfg = composed(f"analysis={name}")
    target = str(cfg.analysis["_target_"])
    check_recorded({"analysis": {"_target_": target}})
    made = get_object(target)
    assert made.name == name
    assert made.question.endswith("?")
    for member in ("missing", "data_sets", "parts", "tables", "pictures"):
        assert callable(getattr(made, member))


@pytest.mark.parametrize("name", NAMES)
def test_keys_and_values_are_those_of_the_signature(composed, name):
    node = OmegaConf.to_container(composed(f"analysis={name}").analysis)
    parameters = inspect.signature(get_object(node.pop("_target_"))).parameters
    assert set(node) == set(parameters)
    node.pop("published")  # figures stand in the file alone
    assert {key: parameters[key].default for key in node} == {
        key: tuple(value) if isinstance(value, list) else value for key, value in node.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_file_opens_with_its_question_and_command_and_explains_every_key(name):
    question, command, *rest = lines_of(name)
    assert re.match(r"# .*\?", question)
    assert command.startswith(f"# Command: isotrain analyze analysis={name} ")
    keys = [line for line in rest if re.match(r"[a-z]\w*:", line)]
    assert keys
    assert [line for line in keys if " # " not in line] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_a_file_composes(name):
    overrides = [word for word in lines_of(name)[1].split() if "=" in word]
    overrides = [f"source.root={CONF}" if o.startswith("source.root=") else o for o in overrides]
    local = ["source.root=/data"] if "source=local" in overrides else []
    assert judged([*overrides, *local], root="analyze")[1] == []


@pytest.mark.parametrize("name", NAMES)
def test_published_figures_can_be_read(name):
    content = OmegaConf.to_container(OmegaConf.load(CONF / "analysis" / f"{name}.yaml"))
    assert all(figure.source for figure in read_published(content["published"]))


def test_the_hash_names_what_changes_numbers(composed):
    first = analysis_hash(composed())
    figure = "{encoder: x, where: {}, column: y, value: 1.0, tolerance: null, source: z}"
    for same in (
        ["output_dir=elsewhere"],
        ["rerun=true"],
        [f"analysis.published=[{figure}]"],
        ["seed=0"],
    ):
        assert analysis_hash(composed(*same)) == first
    others = [
        ["seed=1"],
        ["threads=2"],
        ["device=cpu"],
        ["batch_size=8"],
        ["max_length=64"],
        ["analysis.max_rows=500"],
        ["encoder.width=32"],
        ["source.seed=1"],
        ["from_run=somewhere"],
    ]
    assert len({first, *(analysis_hash(composed(*other)) for other in others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("analysis.words", "dog", "analysis.words must be a list, got 'dog'"),
        ("analysis.words", ["dog"], None),
        ("analysis.words", [1], "analysis.words must be a valid string, got [1]"),
        (
            "analysis.words",
            {"dog": 1},
            "analysis.words must be an instance of Sequence, got {'dog': 1}",
        ),
        ("analysis.corpus", ["rte"], "analysis.corpus must be snli, rte, wic, "),
        ("analysis.max_rows", 1.5, "analysis.max_rows must be a valid integer, got 1.5"),
        ("max_length", 2, "max_length must be at least 3, got 2"),
        ("batch_size", 0, "batch_size must be at least 1, got 0"),
        ("threads", 0, "threads must be at least 1, got 0"),
        ("seed", 2**32, f"seed must be below {2**32}, got {2**32}"),
        ("source.seed", "${oc.env:NOT_SET}", "source.seed: "),
    ],
)
def test_a_value_that_cannot_be(composed, key, value, message):
    cfg = deepcopy(composed())
    with open_dict(cfg):
        OmegaConf.update(cfg, key, value, merge=False)
    found = errors_of(cfg, ANALYSIS)
    if message is None:
        assert found == []
    else:
        assert any(sentence.startswith(message) for sentence in found), found


def test_a_key_of_another_option_is_reported_with_the_keys_there_are():
    for key, words in (("encoder.name", "it has width, n_blocks"), ("task.form", "")):
        (message,) = judged([*BASE, f"{key}=x"], root="analyze")[1]
        assert message.startswith(f"no key {key}; {words}")


def test_a_key_that_is_gone_and_one_too_many(composed):
    cfg = deepcopy(composed())
    with open_dict(cfg):
        cfg["sede"] = 1
    assert errors_of(cfg, ANALYSIS) == ["an analysis has no key sede; did you mean seed?"]
