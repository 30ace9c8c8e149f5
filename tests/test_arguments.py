"""Bounds and names that an annotation states, when a part is made."""

import inspect
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
import torch
from pydantic import Field
from torch import Tensor

from isotrain import arguments
from isotrain.arguments import adapter_of, checked, violation


class Kind(StrEnum):
    """A choice."""

    one = "one"


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


@pytest.mark.parametrize(
    ("hint", "valid", "wrong"),
    [
        (int, [1, -3], [True, 1.0, "1", None]),
        (float, [1, 0.5], [True, "1", math.nan, math.inf]),
        (bool, [True], [1, "true", 0.0]),
        (int | None, [None, 3], ["3"]),
        (Annotated[int, Field(ge=1)] | None, [None, 1], [0]),
        (Literal[1, "a"], [1, "a"], ["b", None]),
        (list[str], [["a"], []], ["a", [1]]),
        (tuple[float, float], [[0.9, 1], (0.9, 1)], [[0.9], ["a", 1]]),
        (Mapping[str, int], [{"a": 1}], [{"a": "1"}, [1]]),
        (Path, ["a/b", Path("a")], [3]),
        (Tensor | None, [torch.ones(1), None], [1.0]),
        (Kind, ["one", Kind.one], ["two"]),
        (Callable[[int], int], [abs], [3]),
    ],
)
def test_numbers_are_strict_and_the_rest_as_yaml_writes_it(hint, valid, wrong):
    adapter = adapter_of(hint)
    assert [value for value in valid if violation(adapter, value)] == []
    assert [value for value in wrong if not violation(adapter, value)] == []


def test_annotations_are_read_once_and_not_before_the_first_call(monkeypatch):
    read = []
    adapter = arguments.adapter_of
    monkeypatch.setattr(arguments, "adapter_of", lambda hint: read.append(1) or adapter(hint))

    @checked
    def own(size: Annotated[int, Field(ge=1)]):
        return size

    assert read == []
    for _ in range(3):
        assert own(1) == 1
    assert read == [1]


def test_the_signature_stays():
    assert list(inspect.signature(part).parameters) == ["size", "rate", "kind", "other"]
    assert part.__doc__ == "A part."
