"""What the source of a part tells: the arguments it takes, and constants of its class.

Nothing is imported: the classes behind the targets take seconds to load. What is ours to read are
the parts of isotrain and the packages of the environment's `ISOTRAIN_ALLOW`.
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

PARTS = (  # modules of isotrain that define parts of a run
    r"isotrain\.(encoders|geometry|metrics|objectives|tasks|tasks\.data|transforms)\.\w+",
    r"isotrain\.analysis\.\w+(\.\w+)?",
    r"isotrain\.model\.pooling",
    r"isotrain\.training\.loggers\.(wandb|tensorboard)_logger",
)
PLAIN_BASES = {"nn.Module", "torch.nn.Module", "object", "ABC", "abc.ABC", "Generic", "Protocol"}


class Signature(NamedTuple):
    """Arguments of a target: name to annotation (None where there is none that can be checked)."""

    arguments: dict[str, ast.expr | None]
    required: set[str]
    takes_any: bool  # has **kwargs
    defaults: dict[str, Any]  # those that are literals


def signature(target: str) -> Signature | None:
    """Arguments of an allowed target; None where reading the source does not tell.

    >>> sorted(signature("isotrain.objectives.cosreg.CosReg").arguments)
    ['reads', 'weight']
    """
    module, _, name = target.rpartition(".")
    if not is_own(module):
        return _signature_of(_library_definition(module, name), module)
    node = definition(module, name)
    if not isinstance(node, ast.ClassDef):
        return _signature_of(node, module)
    for home, base in _lineage(module, name):
        if base is not None and _init_of(base) is not None:
            return _signature_of(base, home)
        if base is None or base.decorator_list:  # foreign, or a dataclass: not for us to say
            return None
    return Signature({}, set(), False, {})


def class_constant(target: str, name: str) -> Any:
    """A literal that a class of ours, or one that it inherits from, assigns to `name`.

    None where there is none, or where reading the source does not tell.

    >>> class_constant("isotrain.tasks.rte.RTE", "n_spans")
    0
    """
    module, _, class_name = target.rpartition(".")
    for _home, node in _lineage(module, class_name):
        if node is None:
            return None
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return None  # a property
        if (value := _assigned(node.body, name)) is not None:
            return literal(value)
    return None


def inherits(target: str, ancestor: str) -> bool:
    """Whether a class of ours is `ancestor`, or inherits from it, as far as sources tell.

    >>> inherits("isotrain.tasks.rte.RTE", "isotrain.tasks.rte.RTE")
    True
    """
    module, _, name = target.rpartition(".")
    lineage = _lineage(module, name)
    return ancestor in (f"{home}.{node.name}" for home, node in lineage if node is not None)


def class_calls(target: str, name: str) -> list[dict[str, Any]]:
    """Keyword literals of the calls that a class of ours, or a base of it, assigns to `name`.

    It assigns names of constants, one or a tuple; the calls are where those are made. Empty where
    there is none, or where reading the source does not tell.

    >>> [call["name"] for call in class_calls("isotrain.tasks.text.Text", "data_sets")]
    ['wikitext-2', 'stsb']
    """
    module, _, class_name = target.rpartition(".")
    for home, node in _lineage(module, class_name):
        value = _assigned(node.body, name) if node is not None else None
        if value is None:
            continue
        names = value.elts if isinstance(value, ast.Tuple) else [value]
        calls = [_found(home, ast.unparse(one))[1] for one in names]
        return [
            {k.arg: literal(k.value) for k in call.keywords if k.arg}
            for call in calls
            if isinstance(call, ast.Call)
        ]
    return []


def _assigned(body: list[ast.stmt], name: str) -> ast.expr | None:
    """What a body assigns to a plain name, alone or in a row of names."""
    for statement in body:
        pairs: list[tuple[ast.expr, ast.expr | None]]
        if isinstance(statement, ast.AnnAssign):
            pairs = [(statement.target, statement.value)]
        elif isinstance(statement, ast.Assign):
            pairs = [(target, statement.value) for target in statement.targets]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs += zip(target.elts, value.elts, strict=False)
            elif isinstance(target, ast.Name) and target.id == name:
                return value
    return None


def _lineage(module: str, name: str) -> Iterator[tuple[str, ast.ClassDef | None]]:
    """A class of ours and those it inherits from, each with its module, the nearest first.

    None stands for one whose source is not ours to read; classes that take no arguments and
    set nothing that we ask for are left out.
    """
    module, node = _found(module, name)
    if not isinstance(node, ast.ClassDef):
        yield module, None
        return
    yield module, node
    for base in node.bases:
        text = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        if text not in PLAIN_BASES:
            yield from _lineage(module, text)


def _found(module: str, name: str) -> tuple[str, ast.AST | None]:
    """Where a name seen in a module of ours is defined, and as what; imports are followed."""
    tree = _source_tree(module) if is_own(module) else None
    if tree is None:
        return module, None
    if (node := _top_level(tree, name) or _assigned(tree.body, name)) is not None:
        return module, node
    for statement in tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        origin = f"{_origin(statement, module)}." if isinstance(statement, ast.ImportFrom) else ""
        for alias in statement.names:
            here = alias.asname or alias.name
            if name == here or name.startswith(f"{here}."):
                owner, _, leaf = (origin + alias.name + name.removeprefix(here)).rpartition(".")
                return (owner, None) if owner == module else _found(owner, leaf)
    return module, None


def _origin(statement: ast.ImportFrom, module: str) -> str:
    """The module that a `from ... import` reads; dots count from the package."""
    if not statement.level:
        return statement.module or ""
    parts = module.split(".")
    path = _source_path(module)
    is_package = path is not None and path.name == "__init__.py"
    kept = parts[: len(parts) - statement.level + is_package]
    return ".".join([*kept, *filter(None, [statement.module])])


def is_own(module: str) -> bool:
    """Whether a module holds parts of isotrain, or is of a package that the user allows."""
    if any(re.fullmatch(pattern, module) for pattern in PARTS):
        return True
    allowed = os.environ.get("ISOTRAIN_ALLOW", "").replace(" ", "").split(",")
    return module.partition(".")[0] in set(allowed) - {"", "isotrain"}


def definition(module: str, name: str) -> ast.stmt | None:
    """The function or class that a module defines itself under a name."""
    tree = _source_tree(module)
    return _top_level(tree, name) if tree else None


def _top_level(tree: ast.Module, name: str) -> ast.stmt | None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return next((n for n in tree.body if isinstance(n, kinds) and n.name == name), None)


@cache
def _source_tree(module: str) -> ast.Module | None:
    path = _source_path(module)
    return ast.parse(path.read_text(encoding="utf-8")) if path is not None else None


def _source_path(module: str) -> Path | None:
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
    return path if path.is_file() else None


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


def _init_of(node: ast.ClassDef) -> ast.FunctionDef | None:
    inits = (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    return next(inits, None)


def _signature_of(node: ast.stmt | None, module: str) -> Signature | None:
    """Arguments of a function or of a class's own constructor; None where there is neither."""
    is_class = isinstance(node, ast.ClassDef)
    function = _init_of(node) if isinstance(node, ast.ClassDef) else node
    if not isinstance(function, ast.FunctionDef):
        return None
    given = function.args
    positional = [*given.posonlyargs, *given.args][int(is_class) :]
    named = [*positional, *given.kwonlyargs]
    n_required = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    values = [*[None] * n_required, *given.defaults][int(is_class) :] + given.kw_defaults
    given_default = {a.arg: value for a, value in zip(named, values, strict=True) if value}
    return Signature(
        {a.arg: _spelled_out(a.annotation, module) for a in named},
        {a.arg for a in named} - set(given_default),
        given.kwarg is not None,
        {name: literal(value) for name, value in given_default.items()},
    )


def _spelled_out(annotation: ast.expr | None, module: str) -> ast.expr | None:
    """What a name such as `Form` stands for, where a module of ours assigns it."""
    node = _found(module, annotation.id)[1] if isinstance(annotation, ast.Name) else None
    return node if isinstance(node, ast.expr) else annotation


def literal(node: ast.expr) -> Any:
    """The value of an expression that is a literal; None for any other."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
