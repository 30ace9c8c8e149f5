"""Definition of a search: fixed overrides, a space and a sampler, in one yaml file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from isotrain.config import sweep
from isotrain.config.command import refusal_of
from isotrain.config.shipped import NAME
from isotrain.config.signatures import nearest
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import margin_mistakes
from isotrain.studies.space import Parameter, grid, parameters, space_mistakes

CHOICES = {
    "sampler": ("tpe", "random", "grid"),
    "pruner": ("median", "none"),
    "direction": ("max", "min", None),
}
LEAST = {"n_trials": 1, "startup": 1, "warmup": 0, "seed": 0}


@dataclass(frozen=True)
class Search:
    """A hyperparameter search; fields are the keys of the yaml file, with their defaults."""

    name: str
    space: tuple[Parameter, ...]
    n_trials: int  # in total, however they end; for a grid at most its points
    overrides: tuple[str, ...] = ()  # of every run
    seeds: tuple[int, ...] = (0,)  # a trial's score is the mean over these
    objective: str | None = None  # a score of result.json; None = the task's monitored dev score
    direction: str | None = None  # max | min; None = the task's
    sampler: str = "tpe"
    startup: int = 8  # random trials before tpe starts; complete ones before any is pruned
    pruner: str = "median"
    warmup: int = 1  # evaluations in training at which no trial is pruned
    compare: str | None = None  # key whose options the confirmation study compares; None = auto
    margin: float | None = None  # of that study; None = no margin
    seed: int = 0  # of the sampler


def load_search(name_or_path: str, n_trials: int | None = None, name: str | None = None) -> Search:
    """Load a search by its name in `conf/tune`, or by the path of a yaml file.

    `n_trials` and `name` override those of the file.

    Raises:
        PlanError: an unknown name, an unreadable file, or errors in it.

    >>> load_search("smoke_search").sampler
    'tpe'
    """
    of_file = sweep.plan_name(name_or_path)
    own = of_file if name is None else name
    try:
        content = sweep.read("tune", name_or_path)
    except ValueError as error:
        raise PlanError(str(error)) from error
    if isinstance(content, dict) and n_trials is not None:
        content["n_trials"] = n_trials
    found = _mistakes(content, ["seed"] if n_trials is None else ["seed", "n_trials"])
    if not re.fullmatch(NAME, own):
        found.append(f"the name {own!r} must consist of letters, digits, _ and .")
    if found:
        raise PlanError("\n".join(f"search {of_file}: {mistake}" for mistake in found))
    assert isinstance(content, dict)
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    given |= {"name": own, "space": parameters(content["space"])}
    search = Search(**given)
    if search.sampler == "grid":
        if endless := [p.key for p in search.space if p.every() is None]:
            raise PlanError(
                f"search {of_file}: a grid needs options or a step for {', '.join(endless)}; add "
                "step, or use sampler: tpe"
            )
        search = replace(search, n_trials=min(search.n_trials, len(grid(search.space))))
    return search


def _mistakes(content: Any, unlimited: Sequence[str]) -> list[str]:
    """Errors in the file itself; overrides and values are validated by the plan."""
    known = [key for key in Search.__dataclass_fields__ if key != "name"]
    if not isinstance(content, dict):
        return [f"a search has the keys {', '.join(known)}"]
    mistakes = [f"no key {key}; {nearest(str(key), known)}" for key in content if key not in known]
    mistakes += [f"{key} is missing" for key in ("space", "n_trials") if key not in content]
    if "space" in content:
        mistakes += space_mistakes(content["space"])
    for key, options in CHOICES.items():
        if key in content and content[key] not in options:
            mistakes.append(
                f"{key} must be {' or '.join(map(str, filter(None, options)))}, got {content[key]}"
            )
    for key, least in LEAST.items():
        value = content.get(key, least)
        if type(value) is not int or value < least:
            mistakes.append(f"{key} must be a whole number from {least}, got {value}")
        elif key not in unlimited and (too_many := refusal_of(value, key)):
            mistakes.append(too_many)
    if not isinstance(content.get("objective", ""), str | None):
        mistakes.append(f"objective must be a score such as val/loss, got {content['objective']!r}")
    if (margin := content.get("margin")) is not None:
        mistakes += margin_mistakes(margin)
    if (compare := content.get("compare")) is not None and "space" in content and not mistakes:
        with_options = [p.key for p in parameters(content["space"]) if p.options and not p.when]
        if compare not in with_options:
            hint = nearest(str(compare), with_options, "those are")
            mistakes.append(f"compare={compare} is no key of the space with options alone; {hint}")
    return mistakes + sweep.mistakes_of_every_run(content)
