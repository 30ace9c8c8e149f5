"""What the base classes of parts share: a misspelt member of a subclass is an error."""

from __future__ import annotations

from difflib import get_close_matches

CUTOFF = 0.85  # similarity: one letter too many or too few in a name of four letters or more


def refuse_misspelt(cls: type, base: type) -> None:
    """Refuse a public name of `cls` that is almost one of the contract `base`.

    A base class with defaults would answer for a misspelt member in silence. For
    `__init_subclass__` of the base: it reads the names that the body of the class defines or
    annotates, not those that a constructor assigns later.

    Raises:
        TypeError: a near miss, with the name that was meant.

    >>> class Layer:
    ...     reads_labels = False
    >>> refuse_misspelt(type("Mine", (Layer,), {"read_labels": True}), Layer)
    Traceback (most recent call last):
    TypeError: Mine.read_labels: did you mean reads_labels, of Layer? Rename it
    """
    contract = _public_names(base)
    for name in sorted(_public_names(cls) - contract):
        meant = get_close_matches(name, contract, n=1, cutoff=CUTOFF)
        if meant and not hasattr(base, name):
            raise TypeError(
                f"{cls.__name__}.{name}: did you mean {meant[0]}, of {base.__name__}? Rename it"
            )


def _public_names(cls: type) -> set[str]:
    names = {*vars(cls), *vars(cls).get("__annotations__", {})}
    return {name for name in names if not name.startswith("_")}
