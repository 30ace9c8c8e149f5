"""The bounds of the changes of the data, on a command line and from Python."""

from __future__ import annotations

import pytest

from tests.judge import check_command

BASE = ("encoder=tiny", "source=demo", "task=rte")


def mistakes(*overrides):
    return check_command([*BASE, *overrides])[1]


@pytest.mark.parametrize(
    ("key", "legal", "refused"),
    [
        ("fraction", ["1", "0.5", "1e-6"], ["0", "-0.1", "1.01", "nan"]),
        ("n_train", ["1", "500", "null"], ["0", "-3"]),
        ("label_skew", ["0", "0.999"], ["-0.1", "1", "1.5", "nan"]),
        ("label_noise", ["0", "1", "0.5"], ["-0.1", "1.01", "nan"]),
        ("hypothesis_only", ["true", "false"], []),
    ],
)
def test_bounds(key, legal, refused):
    for value in legal:
        assert mistakes(f"data.{key}={value}") == []
    for value in refused:
        (mistake,) = mistakes(f"data.{key}={value}")
        assert mistake.startswith(f"data.{key} must be ")
        assert f"got {float(value):g}" in mistake


@pytest.mark.parametrize(
    "override",
    [
        *("data.fraction=half", "data.fraction=null", "data.n_train=2.5", "data.label_skew=null"),
        *("data.label_noise=much", "data.hypothesis_only=maybe", "data.n_rows=5"),
    ],
)
def test_values_of_another_kind(override):
    (mistake,) = mistakes(override)
    assert override.partition("=")[0] in mistake


def test_a_share_and_a_number_are_one_too_many():
    both = "both say how many rows are kept; give one of them"
    (mistake,) = mistakes("data.fraction=0.5", "data.n_train=100")
    assert mistake == f"data.fraction=0.5 and data.n_train=100 {both}"
    assert mistakes("data.fraction=1", "data.n_train=100") == []


def test_every_mistake_is_told():
    assert len(mistakes("data.fraction=2", "data.label_skew=1", "data.label_noise=-1")) == 3
