"""A node of the configuration against the signature of its target: keys, types, legal values."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

from isotrain.arguments import Bounds
from isotrain.config.reading import literal, signature

SUPPLIED = {  # arguments that isotrain gives itself, by group
    "isotropy": {"width"},
    "freezing": {"encoder", "steps_per_epoch"},
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
        "enable_model_summary",
        "enable_progress_bar",
        "logger",
        "num_sanity_val_steps",
        "plugins",
        "strategy",
        "use_distributed_sampler",
    },
}
OF_HYDRA = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bool": (bool,),
    "None": (type(None),),
    "Tensor": (),  # no configuration holds one
}


def nearest(given: str, legal: Sequence[str], listed: str = "it has") -> str:
    """A hint: the closest legal name, or all of them behind the words `listed`.

    >>> nearest("sed", ["seed", "site"]), nearest("zzz", ["seed", "site"])
    ('did you mean seed?', 'it has seed, site')
    """
    if not legal:
        return "it has none"
    near = get_close_matches(given, legal, n=1)
    return f"did you mean {near[0]}?" if near else f"{listed} {', '.join(legal)}"


def binding_mistakes(path: str, node: dict[str, Any]) -> list[str]:
    """What a node gives its target that the target does not take.

    >>> binding_mistakes("objective.x", {"_target_": "isotrain.objectives.cosreg.CosReg",
    ...                                  "wait": 1.0})
    ... # doctest: +NORMALIZE_WHITESPACE
    ['objective.x.wait is no argument of isotrain.objectives.cosreg.CosReg; did you mean weight?',
     'objective.x lacks weight, which isotrain.objectives.cosreg.CosReg needs']
    """
    target = str(node["_target_"])
    bound = signature(target)
    if bound is None:
        return []
    supplied = SUPPLIED.get(path.partition(".")[0], set())
    legal = sorted(set(bound.arguments) - supplied)
    mistakes = []
    for key, value in node.items():
        if key in OF_HYDRA:
            continue
        if key in supplied:
            mistakes.append(f"{path}.{key} is set by isotrain itself; leave it out")
        elif key not in bound.arguments and not bound.takes_any:
            mistakes.append(f"{path}.{key} is no argument of {target}; {nearest(key, legal)}")
        elif isinstance(value, float) and not isfinite(value):
            mistakes.append(f"{path}.{key} must be a finite number, got {value}")
        elif not _fits(value, annotation := bound.arguments.get(key)):
            if isinstance(value, str) and _fits([value], annotation):
                mistakes.append(f"{path}.{key} is a list; write '{path}.{key}=[{value}]'")
            else:
                mistakes.append(f"{path}.{key} must be {_spelled(annotation)}, got {value!r}")
        elif refusal := next(filter(None, (b.refusal(value) for b in _bounds(annotation))), None):
            mistakes.append(f"{path}.{key} {refusal}")
    lacking = sorted(bound.required - supplied - set(node))
    return mistakes + [f"{path} lacks {key}, which {target} needs" for key in lacking]


def _fits(value: Any, annotation: ast.expr | None) -> bool:
    """Whether a value has the annotated type; what cannot be judged here fits."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return value is None
    if isinstance(annotation, ast.Name):
        kinds = TYPES.get(annotation.id)
        as_number = isinstance(value, bool) and annotation.id != "bool"
        return kinds is None or (isinstance(value, kinds) and not as_number)
    if isinstance(annotation, ast.BinOp):
        return _fits(value, annotation.left) or _fits(value, annotation.right)
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        inner = annotation.slice
        options = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if annotation.value.id == "Literal":
            legal = [ast.literal_eval(option) for option in options]
            return any(value == one and type(value) is type(one) for one in legal)  # not True for 1
        if annotation.value.id == "Annotated":
            return _fits(value, options[0])
        if annotation.value.id == "Optional":
            return value is None or _fits(value, inner)
        if annotation.value.id == "Union":
            return any(_fits(value, option) for option in options)
        if annotation.value.id in ("Sequence", "list"):
            return isinstance(value, list | tuple) and all(_fits(one, inner) for one in value)
    return True


def _bounds(annotation: ast.expr | None) -> list[Bounds]:
    """The bounds in `Annotated[float, Bounds(...)]`."""
    if not (isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple)):
        return []
    calls = [part for part in annotation.slice.elts if isinstance(part, ast.Call)]
    return [
        Bounds(
            *(literal(argument) for argument in call.args),
            **{str(k.arg): literal(k.value) for k in call.keywords},
        )
        for call in calls
        if ast.unparse(call.func) == "Bounds"
    ]


def _spelled(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        return _spelled(annotation.slice.elts[0])
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Sequence":
        return f"a list of {_spelled(annotation.slice)}"
    text = ast.unparse(annotation) if annotation is not None else ""
    if text.startswith("Literal["):
        return (
            text.removeprefix("Literal[").removesuffix("]").replace("'", "").replace(", ", " or ")
        )
    return text
