"""What is written as an override is what Hydra reads, alone and as one of several values."""

import math

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isotrain.config.compose import quote
from isotrain.studies.definition import grid_methods

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(r"""'"\,[]{}()=:$ #ab1."""),
    max_size=8,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda items: st.lists(items, max_size=3),
    max_leaves=6,
)
HARD = [
    *("a,b", "it's", 'a "b"', r"a\b", r"a\\b", r"a\'b", "ends in \\", "", " ", "\n", "a\tb"),
    *("true", "False", "NULL", "nan", "Inf", "1", "1e5", "-x", "~", "é", "a=b", "a:b", "#", "x y"),
    *("[tokens]", "{a:1}", "range(3)", "choice(a,b)", "a.b/c-d", "1_000", "null.x", "\u2028"),
    *(["true", True, None, "null"], [["a,b", 1], [], ["it's"]], [1e-5, -0.0, 10**30, math.inf]),
]


def plain(item):
    """A value of the parser: quoted texts are objects of it."""
    if isinstance(item, list):
        return [plain(each) for each in item]
    return item.text if isinstance(item, QuotedString) else item


def same(found, value):
    """Equal, and of the same types: 1, 1.0 and true are equal to each other."""
    assert repr(found) == repr(value)


def hard(test):
    for value in HARD:
        test = example(value)(test)
    return test


@hard
@settings(max_examples=100)
@given(VALUES)
def test_hydra_reads_what_was_written(value):
    override = OverridesParser.create().parse_override(f"a.b={quote(value)}")
    assert not override.is_sweep_override()
    same(plain(override.value()), value)


@settings(max_examples=60)
@given(st.lists(VALUES, min_size=2, max_size=4))
@example(["a,b", "it's"])
@example([["a"], [["b", "true"], None]])
@example([r"a\b", r"ends in \ "[:-1]])
def test_each_of_several_values_reaches_its_job(values):
    """Hydra parses the line, writes each element again for a job, and parses that."""
    parser = OverridesParser.create()
    sweep = parser.parse_override(f"a={','.join(map(quote, values))}")
    texts = list(sweep.sweep_string_iterator())
    found = [parser.parse_override(f"a={text}").value() for text in texts]
    same([plain(value) for value in found], values)


@pytest.mark.parametrize("value", [{"a": 1}, [{"a": 1}], b"x", object()])
def test_what_an_override_cannot_give_is_rejected(value):
    with pytest.raises(ValueError, match="is no value that an override can give"):
        quote(value)


@pytest.mark.parametrize("value", [v for v in HARD if not isinstance(v, list) and v != "~"])
def test_a_grid_writes_alike(value):
    text = f"a.b={quote(value)}"
    assert [overrides for _, overrides in grid_methods({"a.b": [value]})] == [(text,)]
