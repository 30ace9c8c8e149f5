"""What a configuration may name as `_target_`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from isotrain.config.reading import definition, is_own

ALLOWED_TARGETS = (  # besides what a module of isotrain defines; whole names, as patterns
    r"torch\.optim\.[A-Z]\w*",
    r"transformers\.get_scheduler",
    r"pytorch_lightning\.Trainer",
    r"pytorch_lightning\.loggers\.[A-Z]\w*",
)


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


def is_allowed(target: str) -> bool:
    """Whether a configuration may name `target`.

    Either it matches `ALLOWED_TARGETS`, or it is a public function or class that a module of
    `PARTS`, or of a package in the environment's `ISOTRAIN_ALLOW` (comma-separated), defines
    itself: a name that is only imported there, such as `isotrain.model.pooling.torch.load`, is
    not. A configuration file can never widen the list.

    >>> is_allowed("isotrain.model.pooling.ClsPooling"), is_allowed("isotrain.run.os.getcwd")
    (True, False)
    """
    if any(re.fullmatch(pattern, target) for pattern in ALLOWED_TARGETS):
        return True
    module, _, name = target.rpartition(".")
    return is_own(module) and name[:1] != "_" and definition(module, name) is not None


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
