"""What numbers and names an argument may be, said once, in its annotation.

The check of a command line reads the annotation from the source, `checked` when the part is made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import signature
from typing import (
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

P = ParamSpec("P")
R = TypeVar("R")


class Bounds(NamedTuple):
    """The interval of a number: `rate: Annotated[float, Bounds(least=0, most=1)]`."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def refusal(self, value: Any) -> str | None:
        """The rule that a number breaks, and the number; None for what is no number.

        >>> Bounds(least=1).refusal(0), Bounds(above=0).refusal(0.5)
        ('must be at least 1, got 0', None)
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.least is not None and not value >= self.least:  # so that a NaN is outside
            return f"must be at least {self.least}, got {value}"
        if self.above is not None and not value > self.above:
            return f"must be above {self.above}, got {value}"
        if self.most is not None and not value <= self.most:
            return f"must be at most {self.most}, got {value}"
        if self.below is not None and not value < self.below:
            return f"must be below {self.below}, got {value}"
        return None


def check_kind(name: str, part: object, contract: type) -> None:
    """Refuse a part that does not inherit from the base class that is its contract.

    Raises:
        ValueError: with the name of the base class.

    >>> check_kind("n", 1.0, int)
    Traceback (most recent call last):
    ValueError: n: float is no int; let it inherit from builtins.int
    """
    if not isinstance(part, contract):
        raise ValueError(
            f"{name}: {type(part).__name__} is no {contract.__name__}; let it inherit from "
            f"{contract.__module__}.{contract.__qualname__}"
        )


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function or constructor, made to refuse what its annotations do not allow.

    Judged are `Bounds` and `Literal`; types are not. Annotations are read at the first call, when
    every name in them is there.

    >>> from typing import Annotated
    >>> @checked
    ... def half(x: Annotated[float, Bounds(least=0)]) -> float:
    ...     return x / 2
    >>> half(-1)
    Traceback (most recent call last):
    ValueError: x must be at least 0, got -1
    """

    @cache
    def declared() -> tuple[tuple[str, ...], dict[str, Any]]:
        names = tuple(signature(function).parameters)
        return names, get_type_hints(function, include_extras=True)

    @wraps(function)
    def with_legal_arguments(*args: P.args, **kwargs: P.kwargs) -> R:
        names, hints = declared()
        by_place = zip(names, args, strict=False)
        for name, value in [*by_place, *kwargs.items()]:
            if name in hints and (refusal := _refusal(hints[name], value)):
                raise ValueError(f"{name} {refusal}")
        return function(*args, **kwargs)

    return with_legal_arguments


def _refusal(hint: Any, value: Any) -> str | None:
    if get_origin(hint) is Literal and value not in get_args(hint):
        return f"must be {' or '.join(map(str, get_args(hint)))}, got {value!r}"
    bounds = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Bounds)]
    return next(filter(None, (part.refusal(value) for part in bounds)), None)
