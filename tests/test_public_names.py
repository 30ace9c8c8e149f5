"""What can be imported from isotrain itself, by Python and by type checkers."""

import ast
import importlib
import inspect

import pytest

import isotrain
from isotrain.objectives.base import Objective
from isotrain.transforms.base import RowTransform
from tests.processes import ROOT, loaded_by

OF_LIGHTNING = {"FitLayers", "IsotropyMonitor"}  # tests/plugins/test_lightning.py
PARTS = ("transforms", "objectives", "metrics")
MODULES = {
    f"isotrain.{package}.{file.stem}": file.stem
    for package in PARTS
    for file in sorted((ROOT / "isotrain" / package).glob("[a-z]*.py"))
}


def test_every_name_is_what_its_module_defines():
    for name in set(isotrain.__all__) - OF_LIGHTNING:
        value = getattr(isotrain, name)
        assert name == "__version__" or (value.__name__, value.__module__) == (
            name,
            isotrain._HOMES[name],
        )


@pytest.mark.parametrize("module", MODULES)
def test_every_part_has_a_name(module):
    """A metric its function, a layer and an objective its class; helpers of a file none."""
    found = importlib.import_module(module)
    own = [value for value in vars(found).values() if inspect.getmodule(value) is found]
    classes = [x for x in own if inspect.isclass(x) and issubclass(x, Objective | RowTransform)]
    parts = [x for x in classes if x.__name__.lower() == MODULES[module].replace("_", "")]
    if module.startswith("isotrain.metrics."):
        parts = [getattr(found, MODULES[module])]
    for part in parts:
        assert getattr(isotrain, part.__name__) is part
    assert parts or MODULES[module] in ("base", "fitted", "queue", "projection")


def test_importing_isotrain_imports_nothing_and_a_layer_or_metric_torch_alone():
    python, package, parts, _ = loaded_by(
        "import ast, importlib, typing",
        "import isotrain; dir(isotrain)",
        "from isotrain import ClusterPCA, isoscore, suite, kmeans, SimCSE",
        "from isotrain import *; assert callable(suite)",
    )
    assert package - python == {"isotrain"}
    assert "torch" in parts
    assert parts.isdisjoint({"pytorch_lightning", "transformers", "datasets", "torchmetrics"})


def test_names_are_listed_and_no_others_are_imported():
    assert set(isotrain.__all__) <= set(dir(isotrain))
    with pytest.raises(ImportError, match="ClusterPca"):
        exec("from isotrain import ClusterPca")


def test_a_type_checker_takes_each_name_for_public():
    """As `X as X` in a stub says (PEP 484)."""
    stub = ast.parse((ROOT / "isotrain" / "__init__.pyi").read_text(encoding="utf-8"))
    aliases = [a for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names]
    assert {(a.name, a.asname) for a in aliases} == {(name, name) for name in isotrain._HOMES}
