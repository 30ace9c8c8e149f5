"""Arguments of a part, validated by pydantic against the annotations of its signature."""

from collections.abc import Callable, Mapping
from functools import cache, wraps
from inspect import signature
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import AllowInfNan, ConfigDict, Strict, TypeAdapter, ValidationError

P = ParamSpec("P")
R = TypeVar("R")
# A text is no number, and 1 no boolean. A list or text in yaml may become a tuple or an enum.
STRICT: dict[Any, Any] = {
    bool: Annotated[bool, Strict()],
    int: Annotated[int, Strict()],
    float: Annotated[float, Strict(), AllowInfNan(False)],
}
RULES = {  # by pydantic's type of error
    "greater_than_equal": "at least {ge:.15g}",
    "greater_than": "above {gt:.15g}",
    "less_than_equal": "at most {le:.15g}",
    "less_than": "below {lt:.15g}",
    "sequence_str": "a list",
    "missing": "longer",
}


def check_kind(name: str, part: object, contract: type) -> None:
    """Raise a ValueError for a part that does not inherit from its base class.

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
    """The function or constructor, with its arguments validated against their annotations.

    Annotations are read at the first call, when every name in them is defined.

    >>> from pydantic import Field
    >>> @checked
    ... def half(x: Annotated[float, Field(ge=0)]) -> float:
    ...     return x / 2
    >>> half(-1)
    Traceback (most recent call last):
    ValueError: x must be at least 0, got -1
    """
    names = tuple(signature(function).parameters)

    @wraps(function)
    def with_valid_arguments(*args: P.args, **kwargs: P.kwargs) -> R:
        if errors := invalid(function, dict(zip(names, args, strict=False)) | kwargs):
            raise ValueError("\n".join(errors))
        return function(*args, **kwargs)

    return with_valid_arguments


def invalid(function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """A line for each argument that its annotation does not allow, in order.

    Nodes of parts that are not built yet, and arguments without annotation, are skipped.
    """
    adapters = _adapters(function)
    return [
        f"{name} {problem}"
        for name, value in arguments.items()
        if name in adapters
        and not (isinstance(value, dict) and "_target_" in value)
        and (problem := violation(adapters[name], value))
    ]


def violation(adapter: TypeAdapter[Any], value: Any) -> str:
    """The violated rule and the value; empty if the value is valid.

    >>> violation(adapter_of(int), "ten")
    "must be a valid integer, got 'ten'"
    """
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False)
        rules = dict.fromkeys(
            RULES[detail["type"]].format_map(detail.get("ctx", {}))
            if detail["type"] in RULES
            else detail["msg"].removeprefix("Input should be ").replace("'", "")
            for detail in details
        )
        return f"must be {' or '.join(rules)}, got {value!r:.200}"
    return ""


def adapter_of(hint: Any) -> TypeAdapter[Any]:
    """Pydantic's validator of an annotation."""
    return TypeAdapter(_strict(hint), config=ConfigDict(arbitrary_types_allowed=True))


@cache
def _adapters(function: Callable[..., Any]) -> dict[str, TypeAdapter[Any]]:
    try:
        parameters = signature(function, eval_str=True).parameters.values()
    except NameError:  # a name that is there for type checkers alone
        return {}
    return {p.name: adapter_of(p.annotation) for p in parameters if p.annotation is not p.empty}


def _strict(hint: Any) -> Any:
    """The annotation with `STRICT` numbers; a protocol stands for anything."""
    origin, options = get_origin(hint), get_args(hint)
    if getattr(hint, "_is_protocol", False):
        return Any
    if origin is Annotated:
        return Annotated[(_strict(options[0]), *options[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_strict, options))]  # noqa: UP007
    if options and origin not in (Literal, Callable):
        return (
            hint.copy_with(map(_strict, options))
            if hasattr(hint, "copy_with")
            else origin[tuple(map(_strict, options))]
        )
    return STRICT.get(hint, hint)
