"""Pairs of embeddings that belong together: which they are, and what is no pair.

B examples, P vectors of each, N pairs, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isotrain.geometry.rows import check_shape


class Positives:
    """Chooses the pairs of embeddings `([N, D], [N, D])` that are to agree, at each read point.

    `dropout`: an embedding of view 0 and the same one of view 1, which only dropout sets apart.
    `pair`: the two vectors of an example, such as those of its two sentences; all examples, or
    those whose label lies in the closed interval `labels`.

    Raises:
        ValueError: `labels` without pairs, or no interval; examples without exactly two vectors.

    >>> pick = Positives("pair", labels=(0.8, 1.0))
    >>> [(x_ND, y_ND)] = pick([[torch.eye(2)[None].repeat(2, 1, 1)]], torch.tensor([0.2, 0.9]))
    >>> x_ND.tolist(), y_ND.tolist()
    ([[1.0, 0.0]], [[0.0, 1.0]])
    """

    def __init__(self, kind: str, labels: Sequence[float] | None = None) -> None:
        if labels is not None and kind != "pair":
            raise ValueError(
                f"positive_labels={list(labels)} chooses among pairs of vectors, and positives="
                f"{kind} pairs every row with itself; leave it out, or use positives=pair"
            )
        if labels is not None and not (len(labels) == 2 and labels[0] <= labels[1]):
            raise ValueError(
                f"positive_labels is an interval [low, high] of labels, got {list(labels)}; "
                "[1, 1] takes class 1"
            )
        self.of_pairs, self.labels = kind == "pair", labels

    def __call__(
        self, views: Sequence[Sequence[Tensor]], labels_B: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """The pairs at each read point."""
        if not self.of_pairs:
            return [
                (first.flatten(0, -2), second.flatten(0, -2))
                for first, second in zip(views[0], views[1], strict=True)
            ]
        found = []
        for vectors_BPD in views[0]:
            if vectors_BPD.ndim != 3 or vectors_BPD.shape[1] != 2:
                raise ValueError(
                    "positives=pair takes the two vectors of an example, [B, 2, D], got "
                    f"{list(vectors_BPD.shape)}; read a point that has two, or use "
                    "positives=dropout"
                )
            vectors_NPD = self.chosen(vectors_BPD, labels_B)
            found.append((vectors_NPD[:, 0], vectors_NPD[:, 1]))
        return found

    def chosen(self, vectors_BPD: Tensor, labels_B: Tensor) -> Tensor:
        """The vectors `[N, P, D]` of the examples whose label makes them a pair."""
        return vectors_BPD if self.labels is None else vectors_BPD[self.has(labels_B)]

    def has(self, labels_B: Tensor) -> Tensor:
        """Which of the labels lie in the interval, `[B]`; all of them, where there is none."""
        low, high = self.labels or (-torch.inf, torch.inf)
        return (labels_B >= low) & (labels_B <= high)


def check_pairs(x_ND: Tensor, y_ND: Tensor, min_rows: int = 1) -> None:
    """Refuse what is not one row of `y [N, D]` for each row of `x [N, D]`.

    Raises:
        ValueError: not `[N, D]`, fewer than `min_rows` rows, or two shapes.

    >>> check_pairs(torch.eye(2), torch.eye(2))
    """
    check_shape(x_ND, min_rows)
    if y_ND.shape != x_ND.shape:
        raise ValueError(
            f"pairs are one row for each row, {tuple(x_ND.shape)}, got {tuple(y_ND.shape)}; repeat "
            "a row that is in several pairs"
        )


def check_labels(rows_ND: Tensor, labels_N: Tensor) -> None:
    """Refuse what is not one label `[N]` for each embedding or pair.

    Raises:
        ValueError: labels of another shape.

    >>> check_labels(torch.eye(2), torch.tensor([0, 1]))
    """
    if labels_N.shape != rows_ND.shape[:1]:
        raise ValueError(
            f"labels are one for each row, [{len(rows_ND)}], got {tuple(labels_N.shape)}; give as "
            "many"
        )
