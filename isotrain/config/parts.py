"""Parts of a configuration: nodes with a `_target_`, the name of a class or function."""

import os
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, isclass, signature
from traceback import extract_tb
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from isotrain.arguments import check_kind, invalid
from isotrain.console import nearest

OF_HYDRA = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}
RECORDED = re.compile(  # targets that a record may name, besides those of allowed packages
    r"isotrain\.((tasks|tasks\.data|encoders|transforms|objectives|metrics|training\.loggers)\.\w+"
    r"|model\.pooling|training\.muon|training\.step|analysis\.\w+\.analysis)\.[A-Za-z]\w*"
    r"|torch\.optim\.[A-Z]\w*|transformers\.get_scheduler"
    r"|pytorch_lightning\.(Trainer|(loggers|callbacks)\.[A-Z]\w*)"
)


def parts_of(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each node of a plain configuration that has a `_target_`, with its path."""
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield path, dict(node)
        for key, value in node.items():
            yield from parts_of(value, f"{path}.{key}" if path else key)
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from parts_of(value, f"{path}[{number}]")


def load(target: str) -> Any:
    """Import the class or function that a target names.

    Raises:
        ValueError: the module cannot be imported, or has no such name.
    """
    module, _, name = target.rpartition(".")
    try:
        home = import_module(module)
    except Exception as error:  # whatever a module of the user's raises
        raise ValueError(
            f"_target_={target} cannot be imported: {type(error).__name__}: {error}"
            + raised_at(error)
        ) from error
    if not hasattr(home, name):
        public = [n for n, x in vars(home).items() if getattr(x, "__module__", "") == module]
        raise ValueError(f"_target_={target}: {module} has no {name}; {nearest(name, public)}")
    return getattr(home, name)


def raised_at(error: Exception) -> str:
    """` (file:line)` of an error: the innermost line outside of libraries; may be empty."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}:{error.lineno})"
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in extract_tb(error.__traceback__)[1:]
        if not re.match(r"<|.*/(importlib|hydra)/", frame.filename)
    ]
    user_lines = [line for line in lines if "/site-packages/" not in line]
    return f" ({(user_lines or lines)[-1]})" if lines else ""


def parameters_of(part: Any) -> dict[str, Parameter]:
    """The parameters of a class's constructor, or of a function."""
    if isclass(part):
        owner = next(base for base in part.__mro__ if "__init__" in vars(base))
        if owner.__module__ == "torch.nn.modules.module":
            return {}  # nn.Module's own takes anything; torch.compile replaces it by another
    return dict(signature(part).parameters)


def argument_errors(path: str, node: Mapping[str, Any]) -> list[str]:
    """Unknown and invalid arguments of a plain node.

    >>> argument_errors("objective.x", {"_target_": "isotrain.objectives.cosreg.CosReg",
    ...                                 "wait": 1.0})
    ['objective.x.wait is no argument of isotrain.objectives.cosreg.CosReg; did you mean weight?']
    """
    target = str(node["_target_"])
    try:
        part = load(target)
    except ValueError as error:
        return [f"{path}.{error}"]
    parameters = parameters_of(part)
    kinds = {p.kind for p in parameters.values()}
    values = {key: value for key, value in node.items() if key not in OF_HYDRA}
    unknown = [] if Parameter.VAR_KEYWORD in kinds else sorted(set(values) - set(parameters))
    legal = [name for name, p in parameters.items() if p.kind is not p.VAR_POSITIONAL]
    return [
        *(f"{path}.{key} is no argument of {target}; {nearest(key, legal)}" for key in unknown),
        *(f"{path}.{error}" for error in invalid(part, values)),
    ]


def make(node: Any, contract: type = object, **known: Any) -> Any:
    """Build the part of a node, with the `known` values that its signature takes.

    Raises:
        ValueError: it cannot be imported or constructed, a key repeats a known value, or the part
            does not inherit from `contract`; path, file and line are named.
    """
    if not (isinstance(node, DictConfig) and node.get("_target_")):
        raise ValueError(f"a part needs a _target_, as the files of its group have, got {node!r}")
    target = str(node["_target_"])
    path = node._get_full_key("") or target
    parameters = parameters_of(load(target))
    if duplicates := [key for key in known if key in node]:
        raise ValueError(f"{path}.{duplicates[0]} is set by isotrain itself; leave it out")
    arguments = {name: value for name, value in known.items() if name in parameters}
    try:
        part = instantiate(node, _partial_=True, _convert_="all")(**arguments)
    except (ValueError, OSError):  # their messages say what to change
        raise
    except Exception as error:  # a user's part may raise anything
        text = error if isinstance(error, TypeError | InstantiationException) else repr(error)
        raise ValueError(
            f"{path} cannot be made: {text}{raised_at(error)}; give the keys that {target} takes"
        ) from error
    check_kind(path, part, contract)
    return part


def check_recorded(config: Any) -> None:
    """Raise a ValueError for a recorded configuration that names third-party code.

    A record is data. Its targets may be isotrain's, a few names of libraries, or entry points
    `isotrain.parts` of installed packages. `ISOTRAIN_ALLOW` (comma-separated) allows packages.

    >>> check_recorded({"isotropy": {"_target_": "isotrain.transforms.zca.ZCA"}})
    >>> check_recorded({"isotropy": {"_target_": "os.system"}})
    Traceback (most recent call last):
    ValueError: isotropy._target_=os.system is of a package that a record may not run; if you \
trust it, name it: ISOTRAIN_ALLOW=os
    """
    plain = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    for path, node in parts_of(plain):
        target = str(node["_target_"])
        module, _, name = target.rpartition(".")
        if is_allowed(target) and not name.startswith("_"):
            continue
        is_known = RECORDED.fullmatch(target) is not None
        if is_known and module.startswith("isotrain."):  # not what the module only imports
            is_known = getattr(load(target), "__module__", "") == module
        if not is_known:
            raise ValueError(
                f"{path}._target_={target} is of a package that a record may not run; if you trust "
                f"it, name it: ISOTRAIN_ALLOW={target.partition('.')[0]}"
            )


def is_allowed(target: str) -> bool:
    """Whether `ISOTRAIN_ALLOW` names a target's package, or an installed one declares the target.

    Each entry point of the group `isotrain.parts` allows exactly the target that it names.
    """
    packages = os.environ.get("ISOTRAIN_ALLOW", "").replace(" ", "").split(",")
    if target.partition(".")[0] in set(packages) - {"", "isotrain"}:
        return True
    return target in {f"{e.module}.{e.attr}" for e in entry_points(group="isotrain.parts")}
