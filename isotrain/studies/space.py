"""Search space: a list of options or a range for each key.

A parameter with `when` is active only for the named options of other keys.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from isotrain.config.command import refusal_of
from isotrain.config.compose import written
from isotrain.runs.stored import PlanError

Value = int | float | str
FORMS = (
    "a list of options such as [none, clip], or a range such as {low: 1.0e-5, high: 1.0e-3, "
    "log: true} or {low: 1, high: 9, step: 2}"
)
RANGE_KEYS = ("low", "high", "log", "step")


class Parameter(NamedTuple):
    """One key of the space."""

    key: str
    options: tuple[str, ...] = ()  # as written in an override; empty for a range
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None  # null = continuous, or every integer
    when: Mapping[str, tuple[str, ...]] = {}  # key of an earlier parameter: options

    @property
    def is_whole(self) -> bool:
        """Whether a range is of integers, as its ends are."""
        return type(self.low) is int and type(self.high) is int

    def is_active(self, values: Mapping[str, Value]) -> bool:
        """Whether it is active given the values of earlier parameters."""
        return all(values.get(key) in options for key, options in self.when.items())

    def ends(self) -> tuple[Value, ...]:
        """Every option, or both ends of the range."""
        return self.options or (self.low, self.high)

    @property
    def text(self) -> str:
        """Its options or range, in words.

        >>> Parameter("x", low=1, high=9, step=2, when={"isotropy": ("clip", "mean")}).text
        '1 to 9, step 2, where isotropy=clip or mean'
        """
        text = ", ".join(self.options) or f"{self.low} to {self.high}"
        text += ", log" * self.log + (f", step {self.step}" if self.step else "")
        beside = [f"{key}={' or '.join(options)}" for key, options in self.when.items()]
        return text + (f", where {' and '.join(beside)}" if beside else "")

    def every(self) -> tuple[Value, ...] | None:
        """All values in order; None for a range without a step.

        >>> Parameter("x", low=0.1, high=0.3, step=0.1).every()
        (0.1, 0.2, 0.3)
        """
        if self.options:
            return self.options
        if self.log or not (self.is_whole or self.step):
            return None
        low, step = Decimal(str(self.low)), Decimal(str(self.step or 1))
        n_steps = int((Decimal(str(self.high)) - low) // step)
        if too_many := refusal_of(n_steps + 1, f"values of {self.key}"):
            raise PlanError(too_many)
        kind = int if self.is_whole else float
        return tuple(kind(low + number * step) for number in range(n_steps + 1))


def parameters(space: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The parameters of a valid `space`.

    >>> parameters({"lr": {"low": 0.1, "high": 0.2}, "site": [["pooled"], ["tokens"]]})[1].options
    ('[pooled]', '[tokens]')
    """
    found = []
    for key, given in space.items():
        if isinstance(given, list):
            found.append(Parameter(key, tuple(map(written, given))))
            continue
        known = {parameter.key: parameter.options for parameter in found}
        when = {
            other: tuple(_among(known[other], o) for o in (n if isinstance(n, list) else [n]))
            for other, n in given.get("when", {}).items()
        }
        options = tuple(map(written, given.get("options", ())))
        numbers = {name: given[name] for name in RANGE_KEYS if name in given}
        found.append(Parameter(key, options, **numbers, when=when))
    return tuple(found)


def _among(options: Sequence[str], named: Any) -> str:
    """The option named in `when`, given by value or as written in an override."""
    return named if named in options else written(named)


def overrides_of(values: Mapping[str, Value]) -> list[str]:
    """Values as overrides."""
    return [f"{key}={value}" for key, value in values.items()]


def grid(space: Sequence[Parameter]) -> list[dict[str, Value]]:
    """Every combination of values, in order; all parameters must be finite (`every`)."""
    points: list[dict[str, Value]] = [{}]
    for parameter in space:
        values = parameter.every() or ()
        if too_many := refusal_of(len(points) * len(values), "points of a grid"):
            raise PlanError(too_many)
        points = [
            {**point, **value}
            for point in points
            for value in (
                [{parameter.key: v} for v in values] if parameter.is_active(point) else [{}]
            )
        ]
    return points


def corners(space: Sequence[Parameter]) -> list[dict[str, Value]]:
    """Points for validating a space: together they include every end of every parameter.

    The first has the first end of each; the others differ from it in one parameter and those it
    requires; the last has the last end of each.
    """
    known = {parameter.key: parameter for parameter in space}

    def point(chosen: Mapping[str, Value], end: int) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for p in space:
            if p.is_active(values):
                values[p.key] = chosen.get(p.key, p.ends()[end])
        return values

    def asked(parameter: Parameter) -> dict[str, Value]:
        needed: dict[str, Value] = {}
        for key, options in parameter.when.items():
            needed |= {**asked(known[key]), key: options[0]}
        return needed

    found = [point({}, 0)]
    found += [point({**asked(p), p.key: end}, 0) for p in space for end in p.ends()]
    found.append(point({}, -1))
    return [p for number, p in enumerate(found) if p not in found[:number]]


def space_mistakes(space: Any) -> list[str]:
    """Errors in the form of a space; keys and values are validated as overrides."""
    if not isinstance(space, dict) or not space:
        return [f"space must map at least one key to {FORMS}"]
    mistakes = []
    for number, (key, given) in enumerate(space.items()):
        if isinstance(given, list) or (isinstance(given, dict) and "options" in given):
            options = given if isinstance(given, list) else given["options"]
            found = _option_mistakes(options)
            allowed: tuple[str, ...] = ("options", "when")
        elif isinstance(given, dict):
            found, allowed = _range_mistakes(given), (*RANGE_KEYS, "when")
        else:
            found, allowed = [f"must be {FORMS}, got {given!r}"], ()
        if isinstance(given, dict):
            found += [
                f"has no key {k}; it has {', '.join(allowed)}" for k in given if k not in allowed
            ]
            earlier = dict(list(space.items())[:number])
            found += _when_mistakes(given.get("when", {}), earlier)
        mistakes += [f"space.{key} {mistake}" for mistake in found]
    return mistakes


def _option_mistakes(options: Any) -> list[str]:
    if not isinstance(options, list) or len(options) < 2:
        return [f"needs at least two options, got {options!r}; put one alone into overrides"]
    try:
        texts = [written(option) for option in options]
    except ValueError as error:
        return [f"has an option that no override can give: {error}"]
    return [f"has the option {t} twice" for t in dict.fromkeys(texts) if texts.count(t) > 1]


def _range_mistakes(given: Mapping[str, Any]) -> list[str]:
    low, high, step = (given.get(key) for key in ("low", "high", "step"))
    log = given.get("log", False)
    numbers: list[Any] = [low, high, 1 if step is None else step]
    if not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
        return [f"must be {FORMS}, got {dict(given)!r}"]
    low, high, size = map(Decimal, map(str, numbers))
    is_whole = type(given["low"]) is int and type(given["high"]) is int
    rules = {
        f"needs low below high, got {low} and {high}": low < high,
        f"needs log: true or false, got {log!r}": isinstance(log, bool),
        f"needs low above 0 with log: true, got {low}": not log or low > 0,
        "has both log and step; leave one out": not log or step is None,
        f"needs a step above 0, got {step}": size > 0,
        f"needs high at a whole number of steps {step} from low, got {high}": (
            step is None or size <= 0 or (high - low) % size == 0
        ),
        f"has whole ends and the step {step}; write low: {low}.0, high: {high}.0": (
            type(step) is not float or not is_whole
        ),
    }
    return [mistake for mistake, holds in rules.items() if not holds]


def _when_mistakes(when: Any, earlier: Mapping[str, Any]) -> list[str]:
    if not isinstance(when, dict):
        return [f"needs when: {{key: option}}, got {when!r}"]
    mistakes = []
    for key, options in when.items():
        given = earlier.get(key)
        there = given.get("options") if isinstance(given, dict) else given
        if not isinstance(there, list):
            mistakes.append(f"when.{key}: a list of options of that name must stand before it")
            continue
        try:
            texts = [written(option) for option in there]
            wanted = [
                _among(texts, o) for o in (options if isinstance(options, list) else [options])
            ]
        except ValueError as error:
            mistakes.append(f"when.{key}: {error}")
            continue
        mistakes += [
            f"when.{key}={o} is none of {', '.join(texts)}" for o in wanted if o not in texts
        ]
        if not wanted:
            mistakes.append(f"when.{key} names no option of {', '.join(texts)}")
    return mistakes
