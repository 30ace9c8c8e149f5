"""Names allowed as `_target_` in a configuration; nothing is imported.

`isotrain.config.signatures.load` imports allowed names, and checks that they are defined there.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

ALLOWED: dict[str, tuple[str, ...]] = {  # what a group's `_target_` may be
    "task": ("isotrain.tasks.<module>.<name>",),
    "encoder": ("isotrain.encoders.<module>.<name>",),
    "pooling": ("isotrain.model.pooling.<name>",),
    "isotropy": ("isotrain.transforms.<module>.<name>",),
    "freezing": ("isotrain.encoders.freezing.<name>",),
    "peft": ("isotrain.encoders.adapters.<name>",),
    "objective": ("isotrain.objectives.<module>.<name>",),
    "metric": ("isotrain.metrics.<module>.<name>",),
    "source": ("isotrain.tasks.data.<module>.<name>",),
    "analysis": ("isotrain.analysis.<module>.analysis.<name>",),
    "optimizer": ("torch.optim.<Class>", "isotrain.training.muon.<name>"),
    "schedule": ("transformers.get_scheduler",),
    "trainer": ("pytorch_lightning.Trainer",),
    "logger": (
        "isotrain.training.loggers.wandb_logger.<name>",
        "isotrain.training.loggers.tensorboard_logger.<name>",
        "pytorch_lightning.loggers.<Class>",
    ),
}
WITHIN = tuple(rule for rules in ALLOWED.values() for rule in rules)  # of a part within a part
SEVERAL = ("objective", "metric", "logger")  # groups of which a run has any number, by name
PACKAGES = {rule.partition(".")[0] for rule in WITHIN}  # isotrain and the few libraries
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


def group_of(path: str) -> str:
    """The group of a node's part; "" for a nested part."""
    group, *names = path.split(".")
    n_names = {"metric": 2}.get(group, int(group in SEVERAL))
    return group if len(names) == n_names else ""


def is_of_library(target: str) -> bool:
    """Whether a target is one of the few allowed library names."""
    return not target.startswith("isotrain.") and any(_fits(target, rule) for rule in WITHIN)


def allowance(config: Mapping[str, Any]) -> list[str]:
    """The variable in front of a command that allows the user packages of a configuration."""
    named = dict.fromkeys(str(node["_target_"]).partition(".")[0] for _, node in targets(config))
    own = ",".join(package for package in named if package not in PACKAGES)
    return [f"ISOTRAIN_ALLOW={own}"] if own else []


def is_of_user(target: str) -> bool:
    """Whether a name is of a package in `ISOTRAIN_ALLOW` (comma-separated)."""
    allowed = os.environ.get("ISOTRAIN_ALLOW", "").replace(" ", "").split(",")
    top, *rest = target.split(".")
    return top in set(allowed) - {"", "isotrain"} and all(name.isidentifier() for name in rest)


def is_allowed(target: str, group: str = "") -> bool:
    """Whether a configuration may name `target` in a group, and its module may be imported.

    Either it is one of `ALLOWED` for the group (for any group, by default), or a public name of a
    package in the environment's `ISOTRAIN_ALLOW`. A configuration file can never widen the list.

    >>> is_allowed("isotrain.model.pooling.ClsPooling"), is_allowed("isotrain.run.os.getcwd")
    (True, False)
    >>> is_allowed("isotrain.model.pooling.ClsPooling", "pooling")
    True
    >>> is_allowed("isotrain.model.pooling.ClsPooling", "isotropy")
    False
    """
    home, _, name = target.rpartition(".")
    is_users = bool(home) and is_of_user(target) and not name.startswith("_")
    return is_users or any(_fits(target, rule) for rule in ALLOWED.get(group, WITHIN))


def not_allowed(target: str, group: str = "") -> str:
    """The rule that a target violates, and the fixes."""
    rules = " or ".join(ALLOWED.get(group, ("a part defined in isotrain",)))
    what = group if group in ALLOWED else "it"
    return (
        f"_target_={target} is not allowed: {what} must be {rules}, or of a "
        "package of yours that ISOTRAIN_ALLOW=<package> names (which must be importable: install "
        "it, or set PYTHONPATH)"
    )


def _fits(target: str, rule: str) -> bool:
    pattern = re.escape(rule).replace("<module>", r"\w+")
    pattern = pattern.replace("<name>", r"[A-Za-z]\w*").replace("<Class>", r"[A-Z]\w*")
    return re.fullmatch(pattern, target) is not None
