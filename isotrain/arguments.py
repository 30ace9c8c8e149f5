"""Legal numbers and names of an argument, declared once in its annotation.

`checked` reads the annotation when the part is made, and `refusal` when a configuration is checked.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import EnumType
from functools import cache, wraps
from inspect import signature
from math import isfinite
from numbers import Real
from operator import ge, gt, le, lt
from os import PathLike
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

P = ParamSpec("P")
R = TypeVar("R")
LISTS = (list, Sequence, Collection, Iterable)


class Bounds(NamedTuple):
    """The interval of a number: `rate: Annotated[float, Bounds(least=0, most=1)]`."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def refusal(self, value: Any) -> str | None:
        """The rule that a number violates, and the number; None for non-numbers.

        >>> Bounds(least=1).refusal(0), Bounds(above=0).refusal(0.5)
        ('must be at least 1, got 0', None)
        """
        if isinstance(value, bool) or not isinstance(value, Real):
            return None
        for rule, bound, holds in (
            *(("at least", self.least, ge), ("above", self.above, gt)),
            *(("at most", self.most, le), ("below", self.below, lt)),
        ):
            if bound is not None and not holds(value, bound):  # so that a NaN is outside
                return f"must be {rule} {bound}, got {value}"
        return None


def check_kind(name: str, part: object, contract: type) -> None:
    """Reject a part that does not inherit from its required base class.

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
    """The function or constructor, with its arguments checked against their annotations.

    Only `Bounds` and `Literal` are checked, not types. Annotations are read at the first call, when
    every name in them is defined.

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
            if name in hints and (problem := _illegal(hints[name], value)):
                raise ValueError(f"{name} {problem}")
        return function(*args, **kwargs)

    return with_legal_arguments


def refusal(hint: Any, value: Any) -> str | None:
    """Why a configuration value violates an annotation: type, name or range; or None.

    >>> refusal(int, "ten"), refusal(Annotated[int, Bounds(1)] | None, 0)
    ("must be int, got 'ten'", 'must be at least 1, got 0')
    """
    if isinstance(value, float) and not isfinite(value):
        return f"must be a finite number, got {value}"
    if not fits(hint, value):
        near = get_close_matches(str(value), _names(hint), n=1)
        meant = f" (did you mean {near[0]}?)" if near and near[0] != str(value) else ""
        return f"must be {_spelled(hint)}, got {value!r}{meant}"
    return _illegal(hint, value)


def fits(hint: Any, value: Any) -> bool:
    """Whether a configuration value has the annotated type; unknown types are accepted.

    >>> fits(float, 1), fits(int, True), fits(list[str], ["a", 1])
    (True, False, False)
    """
    origin, options = get_origin(hint), get_args(hint)
    if hint in (None, NoneType):
        return value is None
    if hint in (bool, int, float, str):
        kinds = (float, int) if hint is float else hint
        return isinstance(value, kinds) and isinstance(value, bool) == (hint is bool)
    if origin in (Union, UnionType):
        return any(fits(option, value) for option in options)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in options)  # no True for 1
    if origin is Annotated:
        return fits(options[0], value)
    if origin in LISTS:
        return isinstance(value, list) and all(fits(options[0], one) for one in value)
    if origin in (dict, Mapping, tuple):
        return isinstance(value, list if origin is tuple else dict)
    if isinstance(hint, EnumType):
        return isinstance(value, str) and value in hint.__members__
    if isinstance(hint, type) and hint is not Any and not getattr(hint, "_is_protocol", False):
        # A class: of a part that a node in the place of the value makes, or written as a text.
        return isinstance(value, (dict, hint)) or issubclass(hint, PathLike)
    return True


def _illegal(hint: Any, value: Any) -> str | None:
    """Error for a name outside its `Literal`, or a number outside its `Bounds`; else None."""
    if get_origin(hint) is Literal and value not in get_args(hint):
        return f"must be {_spelled(hint)}, got {value!r}"
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    bounds = (one for option in options for one in getattr(option, "__metadata__", ()))
    found = (one.refusal(value) for one in bounds if isinstance(one, Bounds))
    return next(filter(None, found), None)


def _names(hint: Any) -> list[str]:
    """The names that an annotation lists, each once."""
    if get_origin(hint) is Literal or isinstance(hint, EnumType):
        return [str(one) for one in get_args(hint) or hint]
    if get_origin(hint) in (Union, UnionType):
        return list(dict.fromkeys(name for one in get_args(hint) for name in _names(one)))
    return []


def _spelled(hint: Any) -> str:
    origin, options = get_origin(hint), get_args(hint)
    if hint in (None, NoneType):
        return "null"
    if origin is Annotated:
        return _spelled(options[0])
    names = _names(hint)
    if origin in (Union, UnionType):
        kinds = [_spelled(one) for one in options if not _names(one)]
        return " or ".join([*names, *kinds]) if names else " | ".join(kinds)
    if names:
        return " or ".join(names)
    if origin in LISTS:
        return f"a list of {_spelled(options[0])}"
    return hint.__name__ if isinstance(hint, type) else str(hint)


CUTOFF = 0.88  # similarity: one letter too many or too few in a name of five letters or more


def refuse_misspelt(cls: type, base: type) -> None:
    """Reject a public name of `cls` that is a likely misspelling of a member of `base`.

    The contract includes subclasses of `base` that `cls` inherits from. A base class with defaults
    would answer for a misspelt member in silence. For `__init_subclass__` of the base: it reads the
    names that the body of the class defines or annotates, not those that a constructor assigns.

    Raises:
        TypeError: a near miss, with the name that was meant.

    >>> class Layer:
    ...     reads_labels = False
    >>> refuse_misspelt(type("Mine", (Layer,), {"read_labels": True}), Layer)
    Traceback (most recent call last):
    TypeError: Mine.read_labels: did you mean reads_labels, of Layer? Rename it
    """
    bases = [one for one in cls.__mro__[1:] if issubclass(one, base)]
    contract = {name: one.__name__ for one in bases for name in _public_names(one)}
    for name in sorted(_public_names(cls) - contract.keys()):
        meant = next(iter(get_close_matches(name, contract, n=1, cutoff=CUTOFF)), "")
        if meant and not hasattr(base, name):
            raise TypeError(
                f"{cls.__name__}.{name}: did you mean {meant}, of {contract[meant]}? Rename it"
            )


def _public_names(cls: type) -> set[str]:
    names = {*vars(cls), *vars(cls).get("__annotations__", {})}
    return {name for name in names if not name.startswith("_")}
