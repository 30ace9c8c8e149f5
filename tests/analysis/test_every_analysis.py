"""What holds for every analysis: its file, its class, its published figures."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
from omegaconf import OmegaConf

from isotrain.analysis.published import beside, disagreements, read_published
from isotrain.analysis.types import Analysis
from tests.parts import CONF

NAMES = sorted(file.stem for file in (CONF / "analysis").glob("*.yaml"))


def node_of(name):
    return OmegaConf.to_container(OmegaConf.load(CONF / "analysis" / f"{name}.yaml"))


def class_of(name):
    module, _, last = node_of(name)["_target_"].rpartition(".")
    return getattr(import_module(module), last)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_agrees_with_the_arguments(name):
    made, node = class_of(name), node_of(name)
    assert issubclass(made, Analysis)
    assert made.name == name
    assert node.pop("_target_").endswith(made.__qualname__)
    node.pop("published")
    defaults = {key: one.default for key, one in inspect.signature(made).parameters.items()}
    assert defaults.pop("published") == ()
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in node.items()} == defaults


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_plots_have_names_of_their_own(name):
    made = class_of(name)
    tables = [spec.name for spec in made.TABLES]
    plots = [getattr(plot, "name", None) or plot.__name__ for plot in made.PLOTS]
    assert len(set(tables)) == len(tables) > 0
    assert len(set(plots)) == len(plots) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_result_is_held_against_the_figures_of_its_encoder(name):
    published = read_published(node_of(name)["published"])
    judged = [figure for figure in published if figure.tolerance]
    for encoder in dict.fromkeys(figure.encoder for figure in judged):
        own = [figure for figure in judged if figure.encoder == encoder]
        for part, n_wrong in ((0.99, 0), (-0.99, 0), (1.01, len(own))):
            records = [{**f.where, f.column: f.value + part * f.tolerance} for f in own]
            found = [
                one for f, r in zip(own, records, strict=True) for one in beside([f], [r], encoder)
            ]
            assert len(disagreements(found)) == n_wrong


def test_a_misspelt_member_is_an_error():
    with pytest.raises(TypeError, match=r"did you mean data_sets"):
        type("Mine", (Analysis,), {"data_set": lambda self, source: []})
