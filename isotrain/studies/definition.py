"""A study: tasks × methods × seeds in one yaml file."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticSerializationError, to_json

from isotrain.config.compose import quote
from isotrain.config.shipped import plan_name, text_of
from isotrain.console import nearest
from isotrain.runs.keys import on_test
from isotrain.runs.stored import PlanError

NAME = r"\w[\w.+=-]*"  # of a task or method: names become folder names


def _check_names(group: Any) -> Any:
    names = group if isinstance(group, Mapping) else ()
    valid_names = [name for name in names if isinstance(name, str) and re.fullmatch(NAME, name)]
    if invalid_names := [name for name in names if name not in valid_names]:
        raise ValueError(
            f"{invalid_names[0]!r} is no name: letters, digits and _.+=- "
            "(quote it if yaml reads a value)"
        )
    return group


def _distinct(seeds: Sequence[int]) -> Sequence[int]:
    if len(set(seeds)) < max(1, len(seeds)):
        raise ValueError("at least one seed, and each once")
    return seeds


Model = TypeVar("Model", bound=BaseModel)
Overrides = tuple[str, ...]
Group = Annotated[Mapping[str, Overrides], BeforeValidator(_check_names)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
Seeds = Annotated[tuple[Seed, ...], AfterValidator(_distinct)]
Margin = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]


class Published(BaseModel):
    """Published scores that the tables show beside the study's monitored score."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    tasks: Mapping[str, Mapping[str, float]]  # by task and method; a share as 0.653
    split: Literal["dev", "test"] = "dev"  # of which they are
    source: Annotated[str, Field(min_length=1)]  # who, where, when


class Study(BaseModel):
    """All tasks × methods × seeds; fields are the keys of the yaml file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(pattern=r"^[\w+-][\w.+-]*$")]  # of its folder
    tasks: Annotated[Group, Field(min_length=1)]  # name: overrides
    methods: Group = Field(default_factory=dict)
    grid: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    baseline: str  # the method that the others are compared with
    seeds: Seeds
    overrides: Overrides = ()  # of every run
    margin: Margin | None = None  # the largest difference that counts as none, as the score
    margin_share: Annotated[Margin, Field(lt=1)] | None = None  # likewise, of fine-tuning's gain
    published: Published | None = None
    question: str = ""

    @model_validator(mode="after")
    def _with_grid(self) -> Self:
        new_methods = grid_methods(self.grid)
        counts = Counter([*self.methods, *(name for name, _ in new_methods)])
        if duplicates := [name for name, n in counts.items() if n > 1]:
            raise ValueError(
                f"grid makes the method {duplicates[0]} again; write methods that differ in other "
                "signs than letters, digits and . under methods, with names of yours"
            )
        object.__setattr__(self, "methods", {**self.methods, **dict(new_methods)})
        object.__setattr__(self, "grid", {})  # resolved
        if not self.methods:
            raise ValueError("methods: at least one, such as none: [isotropy=none]")
        references = [("baseline", self.baseline, self.methods)]
        for task, scores in self.published.tasks.items() if self.published else ():
            references.append(("published.tasks", task, self.tasks))
            references += [(f"published.tasks.{task}", method, self.methods) for method in scores]
        for key, name, legal in references:
            if name not in legal:
                raise ValueError(f"{key}: no {name}; {nearest(name, [*legal], 'there are')}")
        if self.margin is not None and self.margin_share is not None:
            raise ValueError("margin and margin_share state the margin twice; keep one of them")
        return self

    def published_score(self, task: str, method: str, key: str, monitor: str) -> float | None:
        """The published score of a method, if a score's key is the one that it is of."""
        if self.published is None:
            return None
        of = monitor if self.published.split == "dev" else on_test(monitor)
        return self.published.tasks.get(task, {}).get(method) if key == of else None

    @property
    def pairs(self) -> list[tuple[str, str, list[str]]]:
        """Every task and method with its overrides; later ones win."""
        return [
            (task, method, [*self.overrides, *task_overrides, *method_overrides])
            for task, task_overrides in self.tasks.items()
            for method, method_overrides in self.methods.items()
        ]


def load_study(name_or_path: str) -> Study:
    """Load a study by its name in `conf/studies`, or by the path of a yaml file.

    Its methods are those of `methods`, then one per element of the product of `grid`. It is called
    as its file or, if that is `study.yaml`, as the folder of the file.

    Raises:
        PlanError: an unknown name, an unreadable file, or errors in it.

    >>> load_study("smoke").seeds
    (0, 1)
    """
    text, content = read_yaml("studies", name_or_path)
    defaults = {"name": plan_name(name_or_path), "question": question_of(text)}
    return parsed(Study, defaults | content, f"study {defaults['name']}")


def read_yaml(group: str, name_or_path: str) -> tuple[str, dict[str, Any]]:
    """The text and the content of a file of a study or search."""
    try:
        text = text_of(group, name_or_path)
        content = yaml.safe_load(text)
        to_json(content)  # its record is JSON
    except PydanticSerializationError as error:  # such as "\udc80", half a character
        raise PlanError(
            f"{name_or_path}: texts must be UTF-8, and no alias may be within its anchor ({error})"
        ) from error
    except (ValueError, yaml.YAMLError) as error:
        raise PlanError(str(error)) from error
    if not isinstance(content, dict):
        raise PlanError(f"{name_or_path} must have keys, such as those of conf/{group}")
    return text, content


def parsed(model: type[Model], content: Mapping[str, Any], label: str) -> Model:
    """The model of a file's content; every error in a `PlanError`, one per line."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        lines = []
        for issue in error.errors():
            key = ".".join(map(str, issue["loc"]))
            text = issue["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
            if issue["type"] == "extra_forbidden":
                text = f"no key {key}; {nearest(key, [*model.model_fields])}"
            elif key:
                got = "" if issue["type"] == "missing" else f", got {str(issue['input'])[:80]!r}"
                text = f"{key}: {text}{got}"
            lines.append(f"{label}: {text}")
        raise PlanError("\n".join(lines)) from error


def question_of(text: str) -> str:
    r"""The question of a study: the top comment that begins with `Question:`; else empty.

    >>> question_of("# Question: does it help,\n#           and where?\n# Command: x")
    'does it help, and where?'
    """
    match = re.match(r"# Question:(.*(?:\n#(?! \w+:).*)*)", text)
    return " ".join(match[1].replace("\n#", " ").split()) if match else ""


def grid_methods(grid: Mapping[str, Sequence[Any]]) -> list[tuple[str, Overrides]]:
    """Name and overrides of each method of a grid; the last key varies fastest.

    A name joins the leaf of each key and its value by `_`; for a key without a dot, such as
    `isotropy` or `site`, only the value is used.

    >>> grid_methods({"site": [["tokens"], ["layer_3"]], "isotropy.strength": [0.5]})[1]
    ('layer_3_strength_0.5', ('site=[layer_3]', 'isotropy.strength=0.5'))
    """
    methods = []
    for values in product(*grid.values()) if grid else ():
        pairs = list(zip(grid, values, strict=True))
        name = "_".join(name_of(key, value) for key, value in pairs)
        methods.append((name, tuple(_assigned(key, value) for key, value in pairs)))
    return methods


def _assigned(key: str, value: Any) -> str:
    try:
        return f"{key}={quote(value)}"
    except ValueError as error:
        raise ValueError(f"grid.{key}: {error}") from error


def name_of(key: str, value: Any) -> str:
    """The part of a method's name that comes from one key.

    >>> name_of("site", ["tokens"]), name_of("optimizer.lr", 1e-4)
    ('tokens', 'lr_0.0001')
    """
    values = value if isinstance(value, list) else [value]
    parts = (str(v) if isinstance(v, str | float) else json.dumps(v) for v in values)
    text = "_".join(re.sub(r"^-", "minus_", part) for part in parts)
    text = re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_.") or "none"
    is_word = "." not in key and bool(values) and all(isinstance(v, str) for v in values)
    return text if is_word else f"{re.split(r'[./+]', key)[-1]}_{text}"
