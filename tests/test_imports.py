"""What importing costs, and rules about files that no linter has."""

import ast

import pytest

from tests.processes import ROOT, loaded_by

PACKAGE = ROOT / "isotrain"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = (
    "pytorch_lightning",
    "lightning",
    "transformers",
    "datasets",
    "torchmetrics",
    "hydra",
    "omegaconf",
    "wandb",
    "matplotlib",
    "vl_convert",
    "sklearn",
    "scipy",
)


def test_the_pure_core_and_every_encoder_task_and_objective_cost_torch_alone():
    kinds = ("encoders", "tasks", "objectives")
    files = [file for kind in kinds for file in PACKAGE.glob(f"{kind}/*.py")]
    no_parts = ("start", "correlation", "presets")  # of checkpoints, of `metrics`, of yaml files
    parts = [f"isotrain.{f.parent.name}.{f.stem}" for f in files if f.stem not in no_parts]
    core, found = loaded_by(
        "import isotrain.metrics.isoscore, isotrain.transforms.cluster_pca, isotrain.model.heads, "
        "isotrain.objectives.cosreg, isotrain.model.isotropic_model, isotrain.model.pooling",
        f"import {', '.join(parts)}",
    )
    assert "torch" in core
    assert core.isdisjoint(HEAVY)
    read_presets = {"hydra", "omegaconf"}  # stsb_sentences: STS-B is a yaml file
    assert found.isdisjoint({"tokenizers", *HEAVY} - read_presets)


def test_the_command_line_and_the_check_need_no_torch():
    """Launchers and the errors of a typo too; submitit is imported when it launches."""
    typos = (["sede=1"], ["-m", "sede=1,2", "isotropy=none,mean"])
    hub, found, of_typos = loaded_by(
        "from isotrain.encoders.on_disk import is_on_disk; is_on_disk('someone/some-model')",
        "import isotrain.app, isotrain.cli, isotrain.commands.plans\n"
        "isotrain.app.isotrain_launchers.register()",
        f"for line in {typos}: assert isotrain.app.main(line) == 2",
    )
    assert hub.isdisjoint({"torch", "numpy", *HEAVY})
    assert "hydra" in found
    for one in (found, of_typos):
        assert one.isdisjoint({"torch", "submitit", *HEAVY} - {"hydra", "omegaconf"})
    assert "numpy" not in found


def imported(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            yield node.module


def test_lightning_is_imported_under_one_name():
    """But for the callbacks of the other package."""
    found = {f.name for f in FILES for m in imported(f) if m.split(".")[0] == "lightning"}
    assert found == {"lightning.py"}, "there are files, and one imports it"


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("transformers", {"encoders", "export", "plugins", "commands", "training"}),
        ("datasets", {"tasks"}),
        ("pytorch_lightning", {"training", "build.py", "runner.py", "commands", "plugins"}),
        ("torchmetrics", {"tasks", "plugins"}),
    ],
)
def test_each_library_has_one_home(library, homes):
    found = {
        f.relative_to(PACKAGE).parts[0]
        for f in FILES
        if library in {m.split(".")[0] for m in imported(f)}
    }
    assert found <= homes
    assert found


def test_every_file_says_what_it_is():
    silent = [
        f.name
        for f in FILES
        if f.name != "__init__.py" and not ast.get_docstring(ast.parse(f.read_text()))
    ]
    assert silent == []
