"""Read and validate a study: tasks × methods × seeds in one yaml file."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isfinite, prod
from typing import Any

from isotrain.config import sweep
from isotrain.config.command import refusal_of
from isotrain.config.compose import written
from isotrain.config.signatures import nearest
from isotrain.config.sweep import NAME
from isotrain.jobs.stored import PlanError

NEEDED = ("tasks", "methods", "baseline", "seeds")
KEY = r"\+{0,2}[A-Za-z_][\w/]*(\.\w+)*"  # of an override with a value
KEYS = ("overrides", *NEEDED[:2], "grid", *NEEDED[2:], "margin", "margin_share", "published")


@dataclass(frozen=True)
class Study:
    """All tasks × methods × seeds; `tasks` and `methods` map names to overrides."""

    name: str
    overrides: tuple[str, ...]  # of every run
    tasks: Mapping[str, tuple[str, ...]]
    methods: Mapping[str, tuple[str, ...]]
    baseline: str  # the method that the others are compared with
    seeds: tuple[int, ...]
    margin: float | None = None  # equivalence margin in units of the score
    margin_share: float | None = None  # the margin as a share of the gain of fine-tuning
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by task and method
    published_source: str = ""

    @property
    def n_runs(self) -> int:
        """Number of runs, over tasks, methods and seeds."""
        return len(self.tasks) * len(self.methods) * len(self.seeds)


def load_study(name_or_path: str, name: str | None = None) -> Study:
    """Load a study by its name in `conf/study`, or by the path of a yaml file.

    Its methods are those of `methods`, then one per element of the product of `grid`. Without
    `name` it is called as its file or, if that is `study.yaml`, as the folder of the file; runs are
    shared by content, and the tables go to a folder of that name.

    Raises:
        PlanError: an unknown name, an unreadable file, or errors in it.

    >>> load_study("smoke").seeds
    (0, 1)
    """
    of_file = sweep.plan_name(name_or_path)
    own = of_file if name is None else name
    if not re.fullmatch(NAME, own):
        raise PlanError(
            f"the name of a study names a folder: letters, digits, _ and ., got {own!r}; give "
            "another with --name"
        )
    try:
        content = sweep.read("study", name_or_path)
    except ValueError as error:
        raise PlanError(str(error)) from error
    if mistakes := _mistakes(content):
        raise PlanError("\n".join(f"study {of_file}: {mistake}" for mistake in mistakes))
    assert isinstance(content, dict)
    published = content.get("published", {})
    study = Study(
        name=own,
        overrides=tuple(content.get("overrides", ())),
        tasks={task: tuple(overrides) for task, overrides in content["tasks"].items()},
        methods={
            method: tuple(overrides) for method, overrides in content.get("methods", {}).items()
        }
        | dict(grid_methods(content.get("grid", {}))),
        baseline=content["baseline"],
        seeds=tuple(content["seeds"]),
        margin=content.get("margin"),
        margin_share=content.get("margin_share"),
        published=published.get("tasks", {}),
        published_source=published.get("source", ""),
    )
    if too_many := refusal_of(study.n_runs, "runs"):
        raise PlanError(f"study {of_file}: {too_many}")
    return study


def study_text(name_or_path: str) -> str:
    """The yaml text of a study."""
    try:
        return sweep.text_of("study", name_or_path)
    except ValueError as error:
        raise PlanError(str(error)) from error


def question_of(text: str) -> str:
    r"""The question of a study: the top comment that begins with `Question:`; else empty.

    >>> question_of("# Question: does it help,\n#           and where?\n# Command: x")
    'does it help, and where?'
    """
    found = re.match(r"# Question:(.*(?:\n#(?! \w+:).*)*)", text)
    return " ".join(found[1].replace("\n#", " ").split()) if found else ""


def grid_methods(grid: Mapping[str, Sequence[Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """Name and overrides of each method of a grid; the last key varies fastest.

    A name joins the leaf of each key and its value by `_`; for a key without a dot, such as
    `isotropy` or `site`, only the value is used.

    >>> grid_methods({"site": [["tokens"], ["layer_3"]], "isotropy.removal.strength": [0.5]})[1]
    ('layer_3_strength_0.5', ('site=[layer_3]', 'isotropy.removal.strength=0.5'))
    """
    methods = []
    for values in product(*grid.values()) if grid else ():
        pairs = list(zip(grid, values, strict=True))
        name = "_".join(_name_of(key, value) for key, value in pairs)
        methods.append((name, tuple(f"{key}={written(value)}" for key, value in pairs)))
    return methods


def _name_of(key: str, value: Any) -> str:
    """The part of a method's name that comes from one key."""
    items = value if isinstance(value, list) else [value]
    plain = (str(v) if isinstance(v, str | float) else json.dumps(v) for v in items)
    text = "_".join(re.sub(r"^-", "minus_", item) for item in plain)
    text = re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_") or "none"
    is_word = "." not in key and bool(items) and all(isinstance(v, str) for v in items)
    return text if is_word else f"{re.split(r'[./+]', key)[-1]}_{text}"


def grid_mistakes(grid: Any) -> list[str]:
    """Errors in a `grid`, with their fixes."""
    if not isinstance(grid, dict) or not grid:
        return ["grid must map keys to lists of values, as isotropy.removal.strength: [0.5, 1.0]"]
    mistakes = []
    for key, values in grid.items():
        if not isinstance(key, str) or not re.fullmatch(KEY, key):
            mistakes.append(f"grid has the key {key!r}; write one of a run, as isotropy.n_clusters")
        elif not isinstance(values, list) or not values:
            mistakes.append(f"grid.{key} must be a list of values such as [1, 2], got {values!r}")
        elif key.lstrip("+") == "seed":
            mistakes.append(
                "grid.seed is what seeds says: every method has every seed; leave it out"
            )
        else:
            try:
                written(values)
            except ValueError as error:
                mistakes.append(f"grid.{key}: {error}")
    if not mistakes and (
        too_many := refusal_of(prod(map(len, grid.values())), "methods of a grid")
    ):
        return [too_many]
    counts = Counter(name for name, _ in grid_methods(grid)) if not mistakes else {}
    return mistakes or [
        f"grid makes {n} methods with the name {name}; give a value once, and write methods that "
        "differ in other signs than letters, digits and . under methods, with names of yours"
        for name, n in counts.items()
        if n > 1
    ]


def _mistakes(content: Any) -> list[str]:
    """Errors in the file itself; overrides are validated when runs are planned."""
    if not isinstance(content, dict):
        return [f"a study has the keys {', '.join(KEYS)}"]
    mistakes = [f"no key {key}; {nearest(str(key), KEYS)}" for key in content if key not in KEYS]
    needed = [key for key in NEEDED if key != "methods" or "grid" not in content]
    mistakes += [f"{key} is missing" for key in needed if key not in content]
    mistakes += sweep.mistakes_of_every_run(content)
    for key in ("tasks", "methods"):
        if key in content:
            mistakes += _group_mistakes(key, content[key])
    methods = content.get("methods", {})
    if not isinstance(methods, dict):
        return mistakes
    if "grid" in content:
        mistakes += (found := grid_mistakes(content["grid"]))
        made = [] if found else [name for name, _ in grid_methods(content["grid"])]
        twice = [name for name in made if name in methods]
        mistakes += [
            f"methods.{name} is a method that grid makes, too; rename it" for name in twice
        ]
        methods = dict.fromkeys([*methods, *made])
    if (
        methods and "baseline" in content and content["baseline"] not in [*methods]
    ):  # may be unhashable
        hint = nearest(
            str(content["baseline"]), [str(method) for method in methods], "the methods are"
        )
        mistakes.append(f"baseline={content['baseline']} is not one of the methods; {hint}")
    if "margin" in content:
        mistakes += margin_mistakes(content["margin"])
    if "margin_share" in content:
        mistakes += _share_mistakes(content)
    if "published" in content:
        mistakes += _published_mistakes(content["published"], content.get("tasks") or {}, methods)
    return mistakes


def margin_mistakes(margin: Any) -> list[str]:
    """Errors in a margin."""
    if _is_number(margin) and margin > 0:
        return []
    return [
        "margin is the largest difference that counts as none, in units of the score and above 0, "
        f"such as 0.01 for a point of accuracy; got {margin!r}"
    ]


def _share_mistakes(content: Mapping[str, Any]) -> list[str]:
    share = content["margin_share"]
    if "margin" in content:
        return ["margin and margin_share state the margin twice; keep one of them"]
    if _is_number(share) and 0 < share < 1:
        return []
    return [
        "margin_share is the largest difference that counts as none, as a share of what "
        f"fine-tuning gains (baseline − untrained), between 0 and 1, such as 0.2; got {share!r}"
    ]


def _group_mistakes(key: str, group: Any) -> list[str]:
    if not isinstance(group, dict) or not group:
        return [f"{key} must map at least one name to overrides, such as none: [isotropy=none]"]
    mistakes = []
    for name, overrides in group.items():
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            values = " (yaml reads off, on, no, yes and numbers as values: put them in quotes)"
            hint = "" if isinstance(name, str) else values
            mistakes.append(f"{key} has the name {name!r}; use letters, digits, _ and .{hint}")
        elif not sweep.are_overrides(overrides):
            mistakes.append(
                f"{key}.{name} must be a list of overrides such as [isotropy=none, "
                f"'site=[tokens]'], got {overrides!r}"
            )
    return mistakes


def _published_mistakes(
    content: Any, tasks: Mapping[str, object], methods: Mapping[str, object]
) -> list[str]:
    """Errors in published scores, by task and method."""
    try:
        by_task, source = content["tasks"], content["source"]
        scores = {
            (task, method): by_task[task][method] for task in by_task for method in by_task[task]
        }
        sound = bool(str(source or "").strip()) and all(map(_is_number, scores.values()))
    except (TypeError, KeyError):
        sound = False
    if not sound:
        return [
            "published must be {tasks: {rte: {none: 0.653}}, source: who, where, when}, with "
            f"scores in the units of the table; got {content!r}"
        ]
    mistakes = []
    for task, method in scores:
        if task not in tasks:
            hint = nearest(str(task), list(tasks))
            mistakes.append(f"published.tasks.{task} is not one of the tasks; {hint}")
        if method not in methods:
            hint = nearest(str(method), list(methods))
            mistakes.append(f"published.tasks.{task}.{method} is not one of the methods; {hint}")
    return mistakes


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
