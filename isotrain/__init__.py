"""isotrain: does making representations isotropic while fine-tuning help, where, and why?

The path of one run:

    app.py                        the command: Hydra composes and launches
    config/                       configuration: schema, validation
    runner.py                     one run: seed, build, evaluate, fit, test, record
    build.py                      builds the parts of a run from its configuration
    training/module.py            the training step
    model/isotropic_model.py      encoder -> isotropy layers -> pooling -> head
    transforms/, objectives/      the isotropy layers and the losses that act in the step
    training/monitor/             the isotropy of every layer, measured at each evaluation
    runs/                         what a run leaves on disk

The core is what one run needs; it never imports an app. Apps use finished runs or start many:
`launch`, `studies`, `results`, `pages`, `analysis`, `export`, `plugins`, `doctor`.
`docs/code.md` walks one batch through the files.

To add a layer, a loss, a metric, a task or an encoder: one file in its folder, one yaml in
`conf/<group>/`, one test; the folder's docstring says what to inherit.

Layers, objectives, metrics and what else is used from Python are imported from here, such as
`from isotrain import ClusterPCA, isoscore`. `__init__.pyi` lists these names once, for type
checkers and for the import at first use below: `import isotrain` alone imports no torch.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_LISTED = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
_HOMES = {n.names[0].name: str(n.module) for n in _LISTED if isinstance(n, ast.ImportFrom)}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("isotrain")
    if name not in _HOMES:
        raise AttributeError(f"module 'isotrain' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "isotrain.plugins.pytorch_lightning":  # or of the package that is imported already
        return getattr(import_module("isotrain.plugins").lightning_callbacks(), name)
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
