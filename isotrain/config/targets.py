"""What a configuration may name as `_target_`, judged by the name alone: nothing is imported.

`isotrain.config.signatures.load` imports what passes, and looks whether it is defined there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

PARTS = (  # modules of isotrain that define parts of a run
    r"isotrain\.(encoders|geometry|metrics|objectives|tasks|tasks\.data|transforms)\.\w+",
    r"isotrain\.analysis\.\w+(\.\w+)?",
    r"isotrain\.model\.pooling",
    r"isotrain\.training\.loggers\.(wandb|tensorboard)_logger",
)
OF_LIBRARIES = (  # whole names, as patterns
    r"torch\.optim\.[A-Z]\w*",
    r"transformers\.get_scheduler",
    r"pytorch_lightning\.Trainer",
    r"pytorch_lightning\.loggers\.[A-Z]\w*",
)
OF_HYDRA = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}


def targets(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each node of a plain configuration that has a `_target_`, with its path."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield path, node
        for key, value in node.items():
            yield from targets(value, f"{path}.{key}" if path else key)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from targets(value, f"{path}[{number}]")


def is_of_library(target: str) -> bool:
    """Whether it is one of the few names of libraries that a configuration may have.

    >>> is_of_library("torch.optim.AdamW"), is_of_library("torch.load")
    (True, False)
    """
    return any(re.fullmatch(pattern, target) for pattern in OF_LIBRARIES)


def is_own(module: str) -> bool:
    """Whether a module holds parts of isotrain, or is of a package that the user allows."""
    if any(re.fullmatch(pattern, module) for pattern in PARTS):
        return True
    allowed = os.environ.get("ISOTRAIN_ALLOW", "").replace(" ", "").split(",")
    top, *rest = module.split(".")
    return top in set(allowed) - {"", "isotrain"} and all(name.isidentifier() for name in rest)


def is_allowed(target: str) -> bool:
    """Whether a configuration may name `target`, and its module may be imported.

    Either it is a name of `OF_LIBRARIES`, or a public name of a module of `PARTS`, or of a package
    in the environment's `ISOTRAIN_ALLOW` (comma-separated). A configuration file can never widen
    the list.

    >>> is_allowed("isotrain.model.pooling.ClsPooling"), is_allowed("isotrain.run.os.getcwd")
    (True, False)
    """
    module, _, name = target.rpartition(".")
    return is_of_library(target) or (
        is_own(module) and name.isidentifier() and not name.startswith("_")
    )


def not_allowed(target: str) -> str:
    """The rule that a target breaks, and the ways out."""
    return (
        f"_target_={target} is not allowed: a target is a part defined in isotrain, or in a "
        "package of yours that ISOTRAIN_ALLOW=<package> names, or an optimizer of torch, or a "
        "logger of pytorch_lightning (a package of yours must be importable: install it, or set "
        "PYTHONPATH)"
    )


def foreign_code(hydra: Any) -> list[str]:
    """Paths in Hydra's own node that would run code from elsewhere, or change the environment.

    >>> foreign_code({"callbacks": {"x": {"_target_": "os.mkdir"}}, "job": {"env_set": {}}})
    ['callbacks.x']
    """
    own = ("hydra._internal.", "hydra_plugins.")
    found = [path for path, node in targets(hydra) if not str(node["_target_"]).startswith(own)]
    for name in ("job_logging", "hydra_logging"):
        found += [f"{name}.{path}" for path in _classes(hydra.get(name))]
    if (hydra.get("job") or {}).get("env_set"):
        found.append("job.env_set")
    return found


def _classes(node: Any, path: str = "") -> Iterator[str]:
    """Where a logging configuration names a class that is not of `logging`."""
    for key, value in node.items() if isinstance(node, dict) else ():
        here = f"{path}.{key}" if path else str(key)
        if key in ("class", "()") and not re.fullmatch(r"logging\.[A-Z]\w*", str(value)):
            yield here
        yield from _classes(value, here)
