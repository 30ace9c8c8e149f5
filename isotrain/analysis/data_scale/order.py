"""Which training examples a head is given: nested draws in which each class keeps its share.

N examples, C classes.
"""

from __future__ import annotations

import numpy as np

from isotrain.geometry.groups import hashed_order

HELD_EVERY = 5  # of a class: one example in five decides when training stops


def nested_order(class_N: np.ndarray, seed: int) -> np.ndarray:
    """The positions 0..N−1 in an order whose first n are a draw of n in the shares of the classes.

    So draws are nested: a larger one has all of a smaller one. The examples of a class stand in
    random order; the j-th of n_c is given the place (j + ½)/n_c, and all are sorted by place. Of
    the first n about n·n_c/N are of class c: at most (1 + C·n_c/N)/2 more or fewer.

    >>> classes = np.array([0, 0, 0, 0, 1, 1])
    >>> classes[nested_order(classes, seed=0)].tolist()
    [0, 1, 0, 0, 1, 0]
    """
    drawn_N = hashed_order(len(class_N), seed).numpy()
    place_N = np.empty(len(class_N))
    for one in np.unique(class_N):
        own_n = drawn_N[class_N[drawn_N] == one]
        place_N[own_n] = (np.arange(len(own_n)) + 0.5) / len(own_n)
    return np.lexsort((class_N, place_N))


def held_out(class_n: np.ndarray, group_n: np.ndarray) -> np.ndarray:
    """Which of n ordered examples decide when training stops: of each class the 3rd, 8th, 13th ...

    Examples of a group stay together: those are groups, of the class of their first example. At
    least one decides: the last, where no class has three. Where all are one group, examples do.

    >>> held_out(np.array([0, 1, 0, 0, 1, 0]), np.arange(6)).tolist()
    [False, False, False, True, False, False]
    >>> held_out(np.array([0, 1, 0, 0, 1, 0]), np.array([0, 1, 2, 3, 4, 3])).tolist()
    [False, False, False, True, False, True]
    """
    first_g = np.sort(np.unique(group_n, return_index=True)[1])
    if len(first_g) == 1:
        group_n = first_g = np.arange(len(class_n))
    held_g = np.zeros(len(first_g), dtype=bool)
    for one in np.unique(class_n[first_g]):
        (own,) = np.nonzero(class_n[first_g] == one)
        held_g[own[HELD_EVERY // 2 :: HELD_EVERY]] = True
    if not held_g.any():
        held_g[-1] = True
    return np.isin(group_n, group_n[first_g[held_g]])


def sizes(n: int, smallest: int, factor: float) -> list[int]:
    """Sizes from the smallest on, each `factor` times the last, and n, which has none too near.

    That is, none above n/√factor.

    >>> sizes(100, 16, 2), sizes(80, 16, 2), sizes(10, 16, 2)
    ([16, 32, 64, 100], [16, 32, 80], [10])
    """
    found, size = [], float(smallest)
    while round(size) <= n / factor**0.5:
        found.append(round(size))
        size *= factor
    return [*dict.fromkeys(found), n]
