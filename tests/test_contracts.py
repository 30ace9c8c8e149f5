"""A misspelt member of a part's base class is an error; an honest new name is none."""

from __future__ import annotations

from typing import Any

import pytest

from isotrain.arguments import refuse_misspelt


class _Contract:
    """A base class with defaults, as of every kind of part."""

    reads_labels = False
    has_statistics = False
    n_views: int = 1
    needs = "rows"
    weight: float
    counters: dict[str, Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        refuse_misspelt(cls, _Contract)

    def observe(self) -> None:
        """Do nothing."""

    def fit(self) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("read_labels", "reads_labels"),
        ("reads_label", "reads_labels"),
        ("has_statistic", "has_statistics"),
        ("n_view", "n_views"),
        ("oberve", "observe"),
        ("observes", "observe"),
        ("need", "needs"),
        ("weights", "weight"),  # of a name that the contract only annotates
    ],
)
def test_a_near_miss_is_an_error_that_names_what_was_meant(misspelt: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"^Mine\.{misspelt}: did you mean {meant}, of _Contract"):
        type("Mine", (_Contract,), {misspelt: True})


def test_an_annotation_alone_is_a_name_too() -> None:
    with pytest.raises(TypeError, match="did you mean counters"):

        class Mine(_Contract):
            counter: dict[str, Any]


def test_a_class_below_a_subclass_is_checked_too() -> None:
    class Mine(_Contract):
        pass

    with pytest.raises(TypeError, match=r"Yours\.read_labels"):
        type("Yours", (Mine,), {"read_labels": True})


@pytest.mark.parametrize(
    "name",
    [
        "epsilon",
        "refit",
        "fits",
        "add_statistics",
        "labels",
        "n_steps",
        "recent",
        "view",
        "centre_D",
        "checked",
        "observed_N",
    ],
)
def test_an_honest_new_name_is_none(name: str) -> None:
    type("Mine", (_Contract,), {name: True})


def test_members_of_the_contract_and_private_names_are_free() -> None:
    class Mine(_Contract):
        reads_labels = True
        weight = 2.0
        _read_labels = None

        def observe(self) -> None:
            """Something else."""

    assert Mine().reads_labels
