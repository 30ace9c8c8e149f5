"""Controlled perturbations of the training set: subsampling, class skew, label noise, one sentence.

`subset` limits evaluation. The perturbations are applied in the order of the functions below. Each
has its own RNG stream, and an example gets the draw of its number in the split of the source. So
draws do not depend on the other changes, and changes are nested: a larger share contains the
examples of a smaller one, and more label noise those with less.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch is not needed to draw rows
    from isotrain.tasks.base import Task
    from isotrain.types import Row

Numbered = dict[int, dict[str, Any]]
"""Examples by their number in the split of the source, in that order."""


@dataclass(frozen=True)
class Changes:
    """The changes of the section `data` of a configuration; by default none.

    Args:
        fraction: share of the training examples that is kept, in (0, 1].
        n_train: number of training examples that are kept, in place of `fraction`; None = all.
        label_skew: of class c of C the share 1 − label_skew·c/(C − 1) is kept; in [0, 1).
        holdout: share of the remaining examples that becomes a split `holdout`, with clean labels;
            in [0, 1), and at least one example where it is above 0.
        label_noise: share of the training labels that is replaced, in [0, 1].
        hypothesis_only: sentence 1 is empty in every split.
    """

    fraction: float = 1.0
    n_train: int | None = None
    label_skew: float = 0.0
    holdout: float = 0.0
    label_noise: float = 0.0
    hypothesis_only: bool = False


NOTHING = Changes()


def skewed(rows: Numbered, skew: float, seed: int, target: str, n_classes: int) -> Numbered:
    """Class c keeps round((1 − skew·c/(C − 1))·n_c) of its n_c examples, and one at least.

    >>> rows = {i: {"label": i % 2} for i in range(20)}
    >>> kept = skewed(rows, 0.7, seed=0, target="label", n_classes=2)
    >>> Counter(row["label"] for row in kept.values())
    Counter({0: 10, 1: 3})
    """
    kept: set[int] = set()
    for c, numbers in _by_class(rows, _draws(rows, seed, "label_skew"), target).items():
        share = 1.0 - skew * c / (n_classes - 1)
        kept.update(numbers[: max(1, round(share * len(numbers)))])
    return {number: row for number, row in rows.items() if number in kept}


def fewer(rows: Numbered, n: int, seed: int | str, target: str | None) -> Numbered:
    """`n` of the examples; with the name of a class label, every class in its share.

    The first n of one order of all: example j (from 0) of a class of n_c is at (j + 1/2)/n_c. That
    is the apportionment of Webster (Sainte-Laguë): a count differs from n·n_c/N by less than 1 with
    two or three classes. Largest remainders, which are the same with two, are not nested with
    three: of classes of 6, 6 and 2 examples they give the last 2 of 10 examples and 1 of 11.

    >>> rows = {i: {"label": i % 3 // 2} for i in range(12)}
    >>> Counter(row["label"] for row in fewer(rows, 6, seed=0, target="label").values())
    Counter({0: 4, 1: 2})
    """
    of_class = _by_class(rows, _draws(rows, seed, "fewer"), target)
    order = sorted(
        ((j + 0.5) / len(numbers), c, number)
        for c, numbers in of_class.items()
        for j, number in enumerate(numbers)
    )
    kept = {number for *_, number in order[:n]}
    return {number: row for number, row in rows.items() if number in kept}


def parted(rows: Numbered, holdout: float, seed: int) -> tuple[Numbered, Numbered]:
    """The training examples, and the share of them that is held out, one at least.

    Raises:
        ValueError: none would remain to train on.

    >>> [len(part) for part in parted({i: {} for i in range(10)}, 0.25, seed=0)]
    [8, 2]
    """
    n_held = max(1, round(holdout * len(rows)))
    if n_held >= len(rows):
        raise ValueError(
            f"data.holdout={holdout} of {len(rows)} training examples leaves none; lower it"
        )
    draws = _draws(rows, seed, "holdout")
    held = set(sorted(rows, key=draws.__getitem__)[:n_held])
    return (
        {number: row for number, row in rows.items() if number not in held},
        {number: row for number, row in rows.items() if number in held},
    )


def with_noise(rows: Numbered, noise: float, seed: int, target: str, n_classes: int) -> Numbered:
    """round(noise·N) of the examples get another label.

    A class becomes one of the other classes, each as likely. Scores (`n_classes` = 0) are permuted
    among the chosen examples by one random cycle, which keeps their distribution; a single one
    keeps its score.

    >>> rows = {i: {"label": 0} for i in range(5)}
    >>> noisy = with_noise(rows, 0.4, seed=0, target="label", n_classes=2)
    >>> sum(row["label"] for row in noisy.values())
    2
    """
    draws = _draws(rows, seed, "label_noise")
    chosen = sorted(rows, key=draws.__getitem__)[: round(noise * len(rows))]
    if n_classes:
        others = _draws(rows, seed, "label_noise/class")
        label = {
            i: (rows[i][target] + 1 + int(others[i] * (n_classes - 1))) % n_classes for i in chosen
        }
    else:
        gives = [*chosen[1:], *chosen[:1]]  # the order is random, and so is the cycle
        label = {i: rows[j][target] for i, j in zip(chosen, gives, strict=True)}
    return {i: {**row, target: label[i]} if i in label else row for i, row in rows.items()}


def subset(n_rows: int, n: int, split: str) -> list[int]:
    """Numbers of the `n` examples of a split of `n_rows` that are scored, in order.

    They are random but depend on the split's name alone, so that all runs score the same examples;
    a larger subset contains a smaller one.

    >>> subset(1000, 3, "dev") == sorted(subset(1000, 3, "dev")), len(subset(1000, 3, "dev"))
    (True, 3)
    """
    draws = _draws(range(n_rows), split, "subset")
    return sorted(sorted(range(n_rows), key=draws.__getitem__)[:n])


def apply_changes(
    splits: Mapping[str, list[Row]], task: Task, changes: Changes, seed: int
) -> tuple[dict[str, list[Row]], dict[str, Any], dict[str, list[int]]]:
    """The changed splits, a record of the changes, and the numbers of the training examples.

    Only `hypothesis_only` changes dev and test (the hypothesis-only baseline of natural language
    inference); `holdout` adds a split. The record is empty where no example changes. The numbers,
    of train and of holdout, count in the training split of the source.

    Raises:
        ValueError: more examples than there are, or none; a skew without classes.
    """
    for key in ("label_skew", "label_noise", "hypothesis_only"):
        if getattr(changes, key) and not task.has_labels:
            raise ValueError(f"data.{key} changes labels, and task={task.name} has none")
    if changes.hypothesis_only and len(task.text) != 2:
        raise ValueError(
            f"data.hypothesis_only leaves out the first of two texts, and task={task.name} has "
            f"{len(task.text)}; leave it out"
        )
    target, classes = task.data_set.target, task.data_set.classes
    given = dict(enumerate(splits["train"]))
    kept = given
    if changes.label_skew > 0:
        if not classes:
            raise ValueError(f"data.label_skew is of classes, and task={task.name} has none")
        kept = skewed(kept, changes.label_skew, seed, target, len(classes))
    of_class = target if classes and all(target in row for row in given.values()) else None
    n, n_kept, key = changes.n_train, len(kept), f"data.n_train={changes.n_train}"
    if n is None:
        n, key = round(changes.fraction * n_kept), f"data.fraction={changes.fraction}"
    if not 0 < n <= n_kept:
        raise ValueError(f"{key} keeps {n:,} of {n_kept:,} training examples; keep 1 to {n_kept:,}")
    kept = fewer(kept, n, seed, of_class)
    held: Numbered = {}
    if changes.holdout > 0:
        kept, held = parted(kept, changes.holdout, seed)
    final = kept
    if changes.label_noise > 0:
        final = with_noise(kept, changes.label_noise, seed, target, len(classes))
    done: dict[str, Any] = {"rows": {"before": len(given), "after": len(final)}}
    if of_class:
        stages = {"before": given, "kept": kept, "trained_on": final}
        counts = {s: Counter(row[target] for row in rows.values()) for s, rows in stages.items()}
        done["classes"] = {
            name: {stage: n_C[c] for stage, n_C in counts.items()} for c, name in enumerate(classes)
        }
    if changes.label_noise > 0:
        done["labels_replaced"] = round(changes.label_noise * len(kept))
        done["labels_changed"] = sum(kept[i][target] != final[i][target] for i in kept)
    changed = {**splits, "train": list(final.values())}
    numbers = {"train": list(final)}
    if held:
        changed["holdout"], numbers["holdout"] = list(held.values()), list(held)
        done["rows"]["held_out"] = len(held)
    if changes.hypothesis_only:
        changed = {s: [{**row, task.text[0]: ""} for row in of] for s, of in changed.items()}
        done["sentence1"] = "empty in every split"
    return changed, done if replace(changes, holdout=0.0) != NOTHING else {}, numbers


def _by_class(rows: Numbered, draws: Sequence[float], target: str | None) -> dict[Any, list[int]]:
    """Numbers of each class (of all, where there is no target), as drawn."""
    found: dict[Any, list[int]] = defaultdict(list)
    for number in sorted(rows, key=draws.__getitem__):
        found[0 if target is None else rows[number][target]].append(number)
    return found


def _draws(rows: Iterable[int], seed: int | str, stream: str) -> list[float]:
    """Uniform draws from [0, 1) by example index, independent of which examples exist."""
    random = Random(f"{seed}/{stream}")
    return [random.random() for _ in range(max(rows, default=-1) + 1)]
