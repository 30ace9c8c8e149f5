"""Bounds and names that an annotation states, when a part is made."""

import inspect
import math
from typing import Annotated, Literal

import pytest

from isotrain import arguments
from isotrain.arguments import Bounds, checked


@checked
def part(
    size: Annotated[int, Bounds(least=1, most=9)],
    rate: Annotated[float, Bounds(above=0, below=5)] = 1.0,
    *,
    kind: Literal["a", "b"] = "a",
    other: int = -1,
):
    """A part."""
    return size, rate, kind, other


@pytest.mark.parametrize(
    ("arguments", "keywords", "told"),
    [
        ((0,), {}, "size must be at least 1, got 0"),
        ((), {"size": 10}, "size must be at most 9, got 10"),
        ((1, 0), {}, "rate must be above 0, got 0"),
        ((1, 5), {}, "rate must be below 5, got 5"),
        ((1,), {"rate": math.nan}, "rate must be above 0, got nan"),
        ((1,), {"kind": "c"}, "kind must be a or b, got 'c'"),
    ],
)
def test_an_illegal_argument_is_told_by_name(arguments, keywords, told):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        part(*arguments, **keywords)
    assert str(caught.value) == told


@pytest.mark.parametrize("bounds", [Bounds(0, 1), Bounds(most=1), Bounds(above=0)])
@pytest.mark.parametrize("value", ["x", None, [1], True, False])
def test_what_is_no_number_is_not_judged(bounds, value):
    assert bounds.refusal(value) is None


@pytest.mark.parametrize(
    "bounds", [Bounds(least=0), Bounds(most=1), Bounds(above=0), Bounds(below=1)]
)
def test_a_nan_lies_in_no_bounds(bounds):
    assert bounds.refusal(math.nan).endswith("got nan")


def test_annotations_are_read_once_and_not_before_the_first_call(monkeypatch):
    read = []
    hints = arguments.get_type_hints
    monkeypatch.setattr(
        arguments, "get_type_hints", lambda *given, **more: read.append(1) or hints(*given, **more)
    )
    own = checked(part.__wrapped__)
    assert read == []
    for _ in range(3):
        assert own(1)[0] == 1
    assert read == [1]


def test_the_signature_stays():
    assert list(inspect.signature(part).parameters) == ["size", "rate", "kind", "other"]
    assert part.__doc__ == "A part."
