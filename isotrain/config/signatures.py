"""Validate a configuration node against the signature of its imported target.

Only after `isotrain.config.targets.is_allowed`: importing a module runs it.
"""

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, isclass, isfunction, signature
from traceback import extract_tb
from typing import Any

from isotrain.arguments import invalid
from isotrain.config.targets import OF_HYDRA, is_allowed, is_of_library, not_allowed

SUPPLIED = {  # arguments that isotrain gives itself, by group
    "isotropy": {"width"},
    "freezing": {"encoder", "steps_per_epoch", "n_steps"},
    "peft": {"encoder"},
    "objective": {"width", "n_blocks"},
    "optimizer": {"params"},
    "schedule": {"optimizer", "num_warmup_steps", "num_training_steps"},
    "metric": {"x", "labels", "groups", "reference", "positives"},
    "logger": {"save_dir", "name"},
    "trainer": {
        "callbacks",
        "default_root_dir",
        "enable_checkpointing",
        "logger",
        "num_sanity_val_steps",
        "plugins",
        "use_distributed_sampler",
    },
}
INSTEAD = {  # keys to use in place of a supplied argument
    "trainer.default_root_dir": "output_dir=...",
    "trainer.enable_checkpointing": "checkpoint.every_steps=... or checkpoint.final=...",
    "trainer.logger": "logger=[wandb]",
    "schedule.num_warmup_steps": "training.warmup_fraction=...",
    "schedule.num_training_steps": "trainer.max_steps=...",
}


def supplied_mistake(key: str) -> str:
    """The error for a key that isotrain supplies.

    >>> supplied_mistake("trainer.logger"), supplied_mistake("trainer.plugins")
    ('trainer.logger is set by isotrain itself; use logger=[wandb]', \
'trainer.plugins is set by isotrain itself; leave it out')
    """
    way_out = f"use {INSTEAD[key]}" if key in INSTEAD else "leave it out"
    return f"{key} is set by isotrain itself; {way_out}"


def nearest(given: str, legal: Sequence[str], listed: str = "it has") -> str:
    """A hint: the closest legal name, or all of them after the text `listed`."""
    if not legal:
        return "it has none"
    near = get_close_matches(given, legal, n=1)
    return f"did you mean {near[0]}?" if near else f"{listed} {', '.join(legal)}"


def load(target: str) -> Any:
    """Import the class or function that a target names.

    Raises:
        ValueError: a name that is not allowed, among them one that its module only imports, such as
            `isotrain.transforms.zca.Bounds`; or a module that cannot be imported.
    """
    if not is_allowed(target):
        raise ValueError(not_allowed(target))
    module, _, name = target.rpartition(".")
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:  # whatever a module of the user's raises
        raise ValueError(
            f"_target_={target} cannot be imported: {type(error).__name__}: {error}"
            + raised_at(error)
        ) from error
    home = str(getattr(found, "__module__", ""))
    if is_of_library(target):  # which exports names of its other modules
        is_home = home.partition(".")[0] == module.partition(".")[0]
    elif found is None:
        public = [
            other
            for other, x in vars(sys.modules[module]).items()
            if (isclass(x) or isfunction(x)) and x.__module__ == module and other[0] != "_"
        ]
        raise ValueError(f"_target_={target}: {module} has no {name}; {nearest(name, public)}")
    else:
        is_home = home == module
    if not is_home or not (isclass(found) or isfunction(found)):
        raise ValueError(not_allowed(target))
    return found


def raised_at(error: Exception) -> str:
    """` (file:line)` of an error: the innermost line that is no library's, or empty."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}:{error.lineno})"
    below = [
        f"{frame.filename}:{frame.lineno}"
        for frame in extract_tb(error.__traceback__)[1:]
        if not re.match(r"<|.*/(importlib|hydra)/", frame.filename)
    ]
    own = [line for line in below if "/site-packages/" not in line]
    return f" ({(own or below)[-1]})" if below else ""


def constant(part: Any, name: str) -> Any:
    """A constant of a class; None if only its instances have the value."""
    value = getattr(part, name, None)
    return value if isinstance(value, bool | int | str | tuple) else None


def parameters_of(part: Any) -> dict[str, Parameter]:
    """The parameters of a class's constructor, or of a function."""
    if isclass(part):
        owner = next(base for base in part.__mro__ if "__init__" in vars(base))
        if owner.__module__ == "torch.nn.modules.module":
            return {}  # nn.Module's own takes anything; torch.compile replaces it by another
    return dict(signature(part).parameters)


def argument_mistakes(path: str, node: dict[str, Any]) -> list[str]:
    """Unknown and missing arguments of a node.

    >>> argument_mistakes("objective.x", {"_target_": "isotrain.objectives.cosreg.CosReg",
    ...                                   "wait": 1.0})
    ... # doctest: +NORMALIZE_WHITESPACE
    ['objective.x.wait is no argument of isotrain.objectives.cosreg.CosReg; did you mean weight?',
     'objective.x lacks weight, which isotrain.objectives.cosreg.CosReg needs']
    """
    target = str(node["_target_"])
    try:
        part = load(target)
    except ValueError as error:
        return [f"{path}.{error}"]
    parameters = parameters_of(part)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    supplied = SUPPLIED.get(path.partition(".")[0], set())
    legal, mistakes = sorted(set(named) - supplied), []
    for key in [key for key in node if key not in OF_HYDRA]:
        if key in supplied:
            mistakes.append(supplied_mistake(f"{path}.{key}"))
        elif key not in named and not takes_any:
            mistakes.append(f"{path}.{key} is no argument of {target}; {nearest(key, legal)}")
    values = {key: value for key, value in node.items() if not (supplied | OF_HYDRA) & {key}}
    mistakes += [f"{path}.{told}" for told in invalid(part, values) if not mistakes]
    lacking = [key for key in legal if named[key].default is Parameter.empty and key not in node]
    return mistakes + [f"{path} lacks {key}, which {target} needs" for key in lacking]
