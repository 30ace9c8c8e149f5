"""Class separability by one coordinate. N embeddings, D dimensions, C classes, M training."""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import class_ids, stratified_folds

BLOCK_ENTRIES = 1 << 22  # numbers in a block of columns, 32 MiB


def best_dimension_accuracy(
    x: Tensor | Cloud,
    labels: Tensor,
    n_folds: int = 5,
    seed: int = 0,
    examples: Tensor | None = None,
) -> dict[str, Tensor]:
    """Accuracy of the best threshold on one coordinate of `x [N, D]`; in [0, 1], 1 = separable.

    The rule x_d ≤ t ? a : b, with the coordinate d, threshold t (half-way between two embeddings)
    and classes a and b of highest accuracy on the training folds; the first of ties.
    `labels [N]` are class numbers.

    - `accuracy`: of the `n_folds` rules on held-out embeddings. `n_folds=1` selects and scores on
      the same embeddings, which is optimistic.
    - `majority`: share of the largest class, the chance level.

    Folds follow a hash of (seed, position) and the order of the classes. Embeddings of one example
    (equal numbers in `examples [N]`) lie in one fold. O(N·D·(ln N + C·n_folds)).

    Raises:
        ValueError: a class smaller than `n_folds`.

    After Rudman, Chen and Eickhoff 2023.

    >>> x = torch.tensor([[0.0, 1.0], [9.0, 2.0], [0.0, 3.0], [9.0, 4.0]])
    >>> scores = best_dimension_accuracy(x, torch.tensor([0, 0, 1, 1]), n_folds=1)
    >>> scores["accuracy"].item(), scores["majority"].item()
    (1.0, 0.5)
    """
    x = Cloud.of(x).rows.detach()
    n = len(x)
    class_N = class_ids(labels.to(x.device), n)
    fold_N = torch.zeros_like(class_N)
    if n_folds != 1:
        fold_N = stratified_folds(class_N, n_folds, seed, examples)
    tests = [fold_N == fold for fold in range(n_folds)]
    trains = tests if n_folds == 1 else [~test_N for test_N in tests]
    n_right = x.new_zeros(())
    for test_N, rule in zip(tests, _best_rules(x, class_N, trains), strict=True):
        below_T = x[test_N, rule.dimension] <= rule.threshold
        n_right += (torch.where(below_T, rule.low, rule.high) == class_N[test_N]).sum()
    majority = torch.bincount(class_N).max().double() / n
    return {"accuracy": n_right / n, "majority": majority}


class _Rule(NamedTuple):
    """Class `low` up to the threshold of one coordinate, `high` above it."""

    n_right: int
    dimension: int
    threshold: float
    low: int
    high: int


def _best_rules(x_ND: Tensor, class_N: Tensor, trains: list[Tensor]) -> list[_Rule]:
    """The best rule on each training set; every column is sorted once."""
    rules = [_Rule(-1, 0, 0.0, 0, 0)] * len(trains)
    size = max(1, BLOCK_ENTRIES // len(x_ND))
    for first in range(0, x_ND.shape[1], size):
        value_DN, order_DN = x_ND[:, first : first + size].T.contiguous().sort(dim=1)
        for fold, train_N in enumerate(trains):
            mask_DN = train_N[order_DN]
            value_DM = value_DN[mask_DN].view(len(value_DN), -1)
            class_DM = class_N[order_DN[mask_DN]].view(value_DM.shape)
            rule = _best_rule(value_DM, class_DM)
            if rule.n_right > rules[fold].n_right:
                rules[fold] = rule._replace(dimension=first + rule.dimension)
    return rules


def _best_rule(value_DM: Tensor, class_DM: Tensor) -> _Rule:
    """The best cut of the sorted columns: p values below it, 0 ≤ p < M, never between ties."""
    low_DM = torch.zeros_like(class_DM, dtype=torch.int32)
    high_DM = low_DM.clone()
    n_classes = int(class_DM.max()) + 1
    for c in range(n_classes):
        is_c_DM = (class_DM == c).int()
        count_DM = is_c_DM.cumsum(dim=1, dtype=torch.int32)
        low_DM = torch.maximum(low_DM, count_DM - is_c_DM)
        high_DM = torch.maximum(high_DM, count_DM[:, -1:] - count_DM + is_c_DM)
    n_right_DM = low_DM + high_DM
    n_right_DM[:, 1:][value_DM[:, 1:] == value_DM[:, :-1]] = -1
    d, p = divmod(int(n_right_DM.argmax()), value_DM.shape[1])
    below_C, above_C = (
        torch.bincount(part, minlength=n_classes) for part in class_DM[d].tensor_split([p])
    )
    threshold = -torch.inf
    if p > 0:
        left, right = value_DM[d, p - 1].item(), value_DM[d, p].item()
        midpoint = left / 2.0 + right / 2.0
        threshold = midpoint if midpoint < right else left  # the midpoint can round up
    return _Rule(int(n_right_DM[d, p]), d, threshold, int(below_C.argmax()), int(above_C.argmax()))
