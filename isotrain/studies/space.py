"""Search space: Hydra's sweep grammar, drawn by Optuna; keys beside an option are conditional."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from isotrain.config.compose import quote
from isotrain.console import install
from isotrain.runs.stored import PlanError

try:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import Trial
except ModuleNotFoundError as error:
    raise PlanError(f"a search needs the package optuna; {install('tune')}") from error

Value = int | float | str
Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
FORMS = (
    "choice(none, clip), range(1, 5), range(0.0, 1.0, 0.25), interval(0.0, 1.0), "
    "int(interval(1, 5)) or tag(log, interval(1e-5, 1e-3))"
)


class Parameter(NamedTuple):
    """One key of the space."""

    key: str
    distribution: Distribution
    text: str  # as given, for tables
    when: Mapping[str, tuple[str, ...]] = {}  # key of an earlier parameter: options

    def is_active(self, values: Mapping[str, Value]) -> bool:
        """Whether it is active given the values of earlier parameters."""
        return all(values.get(key) in options for key, options in self.when.items())

    @property
    def summary(self) -> str:
        """Its options or range as given, and where it is active."""
        conditions = [f"{key}={' or '.join(options)}" for key, options in self.when.items()]
        return self.text + (f", where {' and '.join(conditions)}" if conditions else "")

    @property
    def options(self) -> tuple[str, ...]:
        """Its options as written in an override; empty for a range."""
        return getattr(self.distribution, "choices", ())

    @property
    def ends(self) -> tuple[Value, ...]:
        """Every option, or both ends of the range."""
        dist = self.distribution
        if isinstance(dist, CategoricalDistribution):
            return self.options
        return dist.low, dist.high


def parameters(space: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The parameters of a space, in order.

    Raises:
        PlanError: every error at once.

    >>> space = {"isotropy": "choice(none, clip)", "isotropy=clip": {"a.n": "range(1, 5)"}}
    >>> parameters(space)[1].distribution
    IntDistribution(high=4, log=False, low=1, step=1)
    """
    by_key: dict[str, Parameter] = {}
    if errors := list(_read(space, {}, by_key, "space")):
        raise PlanError("\n".join(errors))
    return tuple(by_key.values())


def suggest(trial: Trial, space: Sequence[Parameter]) -> list[str]:
    """Overrides with a trial's values; those that it lacks are drawn."""
    values: dict[str, Value] = {}
    for p in space:
        dist, key = p.distribution, p.key
        if not p.is_active(values):
            continue
        if isinstance(dist, CategoricalDistribution):
            values[key] = trial.suggest_categorical(key, p.options)
        else:
            is_int = isinstance(dist, IntDistribution)
            draw: Any = trial.suggest_int if is_int else trial.suggest_float
            values[key] = draw(key, dist.low, dist.high, step=dist.step, log=dist.log)
    return overrides_of(values)


def overrides_of(values: Mapping[str, Any]) -> list[str]:
    """Values as overrides."""
    return [f"{key}={value}" for key, value in values.items()]


def corners(space: Sequence[Parameter]) -> list[list[str]]:
    """Overrides of points that together have every option and both ends of ranges.

    The first has the first end of each parameter. Each further one differs from it in one
    parameter and those that this one requires; the last has the last end of each.
    """
    by_key = {parameter.key: parameter for parameter in space}

    def point(choices: Mapping[str, Value], end: int) -> list[str]:
        values: dict[str, Value] = {}
        for p in space:
            if p.is_active(values):
                values[p.key] = choices.get(p.key, p.ends[end])
        return overrides_of(values)

    def needed(p: Parameter) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key, options in p.when.items():
            values |= {**needed(by_key[key]), key: options[0]}
        return values

    points = [point({}, 0)]
    points += [point({**needed(p), p.key: end}, 0) for p in space for end in p.ends]
    points.append(point({}, -1))
    return [p for number, p in enumerate(points) if p not in points[:number]]


def _read(
    space: Any, when: Mapping[str, tuple[str, ...]], by_key: dict[str, Parameter], path: str
) -> Iterator[str]:
    """Add the parameters of a space to `by_key`; its errors."""
    if not isinstance(space, Mapping) or not space:
        yield f"{path} must map keys to {FORMS}, got {space!r}"
        return
    for name, spec in space.items():
        try:
            if "=" in str(name):
                override = _parsed(str(name))
                key, options = override.get_key_element(), _options(override)
                legal = by_key[key].options if key in by_key else ()
                if not set(options) <= set(legal):
                    raise ValueError(f"needs options of {key} before it, got {legal or 'none'}")
                yield from _read(spec, {**when, key: options}, by_key, f"{path}.{name}")
                continue
            if name in by_key:
                raise ValueError("is given twice; name several options as isotropy=clip,mean")
            text = ",".join(map(quote, spec)) if isinstance(spec, list) else str(spec)
            by_key[str(name)] = Parameter(str(name), _distribution(f"{name}={text}"), text, when)
        except ValueError as error:
            yield f"{path}.{name} {error}"


def _distribution(text: str) -> Distribution:
    """Optuna's distribution of an override in Hydra's sweep grammar."""
    override = _parsed(text)
    value, spec = override.value(), text.partition("=")[2]
    if isinstance(value, ChoiceSweep):
        return CategoricalDistribution(_options(override))
    if isinstance(value, RangeSweep):
        numbers = (value.start, value.stop, value.step)
        start, stop, step = (Decimal(str(number)) for number in numbers)
        n = int(((stop - start) / step).to_integral_value(ROUND_CEILING)) if step > 0 else 0
        if n < 2:
            raise ValueError(f"needs two or more values in steps above 0, got {spec}")
        last = start + (n - 1) * step  # `stop` is left out, as on a command line
        if all(isinstance(number, int) for number in numbers):
            return IntDistribution(int(start), int(last), step=int(step))
        return FloatDistribution(float(start), float(last), step=float(step))
    if isinstance(value, IntervalSweep) and value.tags <= {"log"}:
        low, high, log = value.start or 0, value.end or 0, "log" in value.tags
        if isinstance(low, int) and isinstance(high, int):
            return IntDistribution(low, high, log=log)
        return FloatDistribution(low, high, log=log)
    raise ValueError(f"must be {FORMS}, got {spec}; put a single value into overrides")


def _options(override: Override) -> tuple[str, ...]:
    if not override.is_sweep_override():
        return (override.get_value_element_as_str(),)
    return tuple(override.sweep_string_iterator())


def _parsed(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except (HydraException, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"must be {FORMS}, got {text.partition('=')[2]} ({reason})") from error
