"""Bounds and names that an annotation states, when a part is made."""

import math
from typing import Annotated, Literal

import pytest
from pydantic import Field

from isotrain.arguments import checked


@checked
def part(
    size: Annotated[int, Field(ge=1, le=9)],
    rate: Annotated[float, Field(gt=0, lt=5)] = 1.0,
    *,
    kind: Literal["a", "b"] = "a",
    other: int = -1,
):
    """A part."""
    return size, rate, kind, other


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((0,), {}, "size must be at least 1, got 0"),
        ((), {"size": 10}, "size must be at most 9, got 10"),
        ((1, 0), {}, "rate must be above 0, got 0"),
        ((1, 5), {}, "rate must be below 5, got 5"),
        ((1,), {"rate": math.nan}, "rate must be a finite number, got nan"),
        ((1,), {"kind": "c"}, "kind must be a or b, got 'c'"),
    ],
)
def test_an_illegal_argument_is_reported_by_name(arguments, keywords, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        part(*arguments, **keywords)
    assert str(caught.value) == message
