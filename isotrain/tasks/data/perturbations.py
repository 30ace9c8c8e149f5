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
        n_train: number of training examples that are kept; None = all.
        label_skew: of class c of C the share 1 − label_skew·c/(C − 1) is kept; in [0, 1).
        holdout: share of the remaining examples that becomes a split `holdout`, with clean labels;
            in [0, 1), and at least one example where it is above 0.
        label_noise: share of the training labels that is replaced, in [0, 1].
        hypothesis_only: sentence 1 is empty in every split.
    """

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
    kept_numbers: set[int] = set()
    for c, numbers in _by_class(rows, _draws(rows, seed, "label_skew"), target).items():
        share = 1.0 - skew * c / (n_classes - 1)
        kept_numbers.update(numbers[: max(1, round(share * len(numbers)))])
    return {number: row for number, row in rows.items() if number in kept_numbers}


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
    draws = _draws(rows, seed, "fewer")
    order = sorted(
        ((j + 0.5) / len(numbers), draws[number], number)  # no class comes first in a tie
        for numbers in _by_class(rows, draws, target).values()
        for j, number in enumerate(numbers)
    )
    kept_numbers = {number for *_, number in order[:n]}
    return {number: row for number, row in rows.items() if number in kept_numbers}


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
    held_numbers = set(sorted(rows, key=draws.__getitem__)[:n_held])
    return (
        {number: row for number, row in rows.items() if number not in held_numbers},
        {number: row for number, row in rows.items() if number in held_numbers},
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
    noisy = sorted(rows, key=draws.__getitem__)[: round(noise * len(rows))]
    if n_classes:
        shift = _draws(rows, seed, "label_noise/class")
        labels = {
            i: (rows[i][target] + 1 + int(shift[i] * (n_classes - 1))) % n_classes for i in noisy
        }
    else:
        donors = [*noisy[1:], *noisy[:1]]  # the order is random, and so is the cycle
        labels = {i: rows[j][target] for i, j in zip(noisy, donors, strict=True)}
    return {i: {**row, target: labels[i]} if i in labels else row for i, row in rows.items()}


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
    source_rows = dict(enumerate(splits["train"]))
    kept_rows = source_rows
    if changes.label_skew > 0:
        if not classes:
            raise ValueError(f"data.label_skew is of classes, and task={task.name} has none")
        kept_rows = skewed(kept_rows, changes.label_skew, seed, target, len(classes))
    class_key = target if classes and all(target in row for row in source_rows.values()) else None
    n_kept = len(kept_rows)
    if changes.n_train is not None:
        if not 0 < changes.n_train <= n_kept:
            raise ValueError(
                f"data.n_train keeps {changes.n_train:,} of {n_kept:,} training examples; "
                f"give 1 to {n_kept:,}"
            )
        kept_rows = fewer(kept_rows, changes.n_train, seed, class_key)
    holdout_rows: Numbered = {}
    if changes.holdout > 0:
        kept_rows, holdout_rows = parted(kept_rows, changes.holdout, seed)
    train_rows = kept_rows
    if changes.label_noise > 0:
        train_rows = with_noise(kept_rows, changes.label_noise, seed, target, len(classes))
    record: dict[str, Any] = {"rows": {"before": len(source_rows), "after": len(train_rows)}}
    if class_key:
        stages = {"before": source_rows, "kept": kept_rows, "trained_on": train_rows}
        counts = {s: Counter(row[target] for row in rows.values()) for s, rows in stages.items()}
        record["classes"] = {
            name: {stage: n_C[c] for stage, n_C in counts.items()} for c, name in enumerate(classes)
        }
    if changes.label_noise > 0:
        record["labels_replaced"] = round(changes.label_noise * len(kept_rows))
        changed = (kept_rows[i][target] != train_rows[i][target] for i in kept_rows)
        record["labels_changed"] = sum(changed)
    by_split = {**splits, "train": list(train_rows.values())}
    numbers = {"train": list(train_rows)}
    if holdout_rows:
        by_split["holdout"], numbers["holdout"] = list(holdout_rows.values()), list(holdout_rows)
        record["rows"]["held_out"] = len(holdout_rows)
    if changes.hypothesis_only:
        by_split = {s: [{**row, task.text[0]: ""} for row in rows] for s, rows in by_split.items()}
        record["sentence1"] = "empty in every split"
    return by_split, record if replace(changes, holdout=0.0) != NOTHING else {}, numbers


def _by_class(rows: Numbered, draws: Sequence[float], target: str | None) -> dict[Any, list[int]]:
    """Example numbers by class, in random order; one class if there is no target."""
    by_class: dict[Any, list[int]] = defaultdict(list)
    for number in sorted(rows, key=draws.__getitem__):
        by_class[0 if target is None else rows[number][target]].append(number)
    return by_class


def _draws(rows: Iterable[int], seed: int | str, stream: str) -> list[float]:
    """Uniform draws from [0, 1) by example index, independent of which examples exist."""
    rng = Random(f"{seed}/{stream}")
    return [rng.random() for _ in range(max(rows, default=-1) + 1)]
