"""What a configuration may name as `_target_`, and the keys it may give it, read from source.

Nothing is imported: the classes behind the targets take seconds to load.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ALLOWED_TARGETS = (  # besides what a module of isotrain defines; whole names, as patterns
    r"torch\.optim\.[A-Z]\w*",
    r"transformers\.get_scheduler",
    r"pytorch_lightning\.Trainer",
    r"pytorch_lightning\.loggers\.[A-Z]\w*",
)


PARTS = (  # modules of isotrain that define parts of a run
    r"isotrain\.(encoders|metrics|objectives|tasks|transforms)\.\w+",
    r"isotrain\.poolers",
    r"isotrain\.training\.(wandb|tensorboard)_logger",
)


class Signature(NamedTuple):
    """Arguments of a target: name to annotation (None where there is none that can be checked)."""

    arguments: dict[str, ast.expr | None]
    required: set[str]
    takes_any: bool  # has **kwargs


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
    itself: a name that is only imported there, such as `isotrain.poolers.torch.load`, is not. A
    configuration file can never widen the list.

    >>> is_allowed("isotrain.poolers.ClsPooling"), is_allowed("isotrain.run.os.getcwd")
    (True, False)
    """
    if any(re.fullmatch(pattern, target) for pattern in ALLOWED_TARGETS):
        return True
    module, _, name = target.rpartition(".")
    return _is_own(module) and name[:1] != "_" and _definition(module, name) is not None


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


def signature(target: str) -> Signature | None:
    """Arguments of an allowed target; None where reading the source does not tell.

    >>> sorted(signature("isotrain.objectives.cosreg.CosReg").arguments)
    ['weight']
    """
    module, _, name = target.rpartition(".")
    node = _definition(module, name) if _is_own(module) else _library_definition(module, name)
    if isinstance(node, ast.ClassDef):
        inits = (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
        init = next(inits, None)
        if init is None:  # inherited, or a dataclass: not for us to say, but for torch's modules
            bases = {ast.unparse(base) for base in node.bases} - {"nn.Module", "torch.nn.Module"}
            return None if bases or node.decorator_list else Signature({}, set(), False)
        return _arguments(init, skip=1)
    return _arguments(node, skip=0) if isinstance(node, ast.FunctionDef) else None


def class_constant(target: str, name: str) -> Any:
    """A literal that a class body of ours assigns to `name`; None where there is none.

    >>> class_constant("isotrain.tasks.rte.RTE", "n_spans")
    0
    """
    module, _, class_name = target.rpartition(".")
    node = _definition(module, class_name) if _is_own(module) else None
    value = _assigned(node.body, name) if isinstance(node, ast.ClassDef) else None
    return _literal(value) if value is not None else None


def module_call(module: str, name: str) -> dict[str, Any]:
    """Keyword literals of the call that a module of ours assigns to `name`; {} where there is none.

    >>> module_call("isotrain.tasks.rte", "DATA")["name"]
    'rte'
    """
    tree = _source_tree(module) if _is_own(module) else None
    value = _assigned(tree.body, name) if tree else None
    if not isinstance(value, ast.Call):
        return {}
    return {k.arg: _literal(k.value) for k in value.keywords if k.arg}


def _assigned(body: list[ast.stmt], name: str) -> ast.expr | None:
    """What a body assigns to a plain name."""
    for statement in body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            return statement.value
    return None


def _is_own(module: str) -> bool:
    if any(re.fullmatch(pattern, module) for pattern in PARTS):
        return True
    allowed = os.environ.get("ISOTRAIN_ALLOW", "").replace(" ", "").split(",")
    return module.partition(".")[0] in set(allowed) - {"", "isotrain"}


def _definition(module: str, name: str) -> ast.stmt | None:
    tree = _source_tree(module)
    return _top_level(tree, name) if tree else None


def _top_level(tree: ast.Module, name: str) -> ast.stmt | None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return next((n for n in tree.body if isinstance(n, kinds) and n.name == name), None)


@cache
def _source_tree(module: str) -> ast.Module | None:
    top, *rest = module.split(".")
    try:
        spec = find_spec(top)  # of the top package alone: finding a submodule imports its parents
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not all(part.isidentifier() for part in rest):
        return None
    path = Path(spec.origin)
    if rest:
        path = path.parent.joinpath(*rest)
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else None


@cache
def _library_definition(module: str, name: str) -> ast.stmt | None:
    """Where a library defines what its package re-exports, one folder deep at most."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent.joinpath(*rest)
    for pattern in ("*.py", "*/*.py"):
        for path in sorted(folder.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            if re.search(rf"^(class|def) {name}\b", text, re.MULTILINE):
                return _top_level(ast.parse(text), name)
    return None


def _arguments(function: ast.FunctionDef, skip: int) -> Signature:
    given = function.args
    positional = [*given.posonlyargs, *given.args][skip:]
    named = [*positional, *given.kwonlyargs]
    n_required = len(positional) - len(given.defaults)
    required = {a.arg for a in positional[: max(0, n_required)]}
    bare = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    required |= {a.arg for a, default in bare if default is None}
    return Signature({a.arg: a.annotation for a in named}, required, given.kwarg is not None)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
