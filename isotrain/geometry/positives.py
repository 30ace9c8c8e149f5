"""Which rows of a batch belong together. B examples, P vectors of each, N pairs, D dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from isotrain.geometry.each_cloud import mean_loss


class Positives:
    """Picks the pairs of rows `([N, D], [N, D])` that are to agree, at each place.

    `dropout`: every row of view 0 with the same row of view 1, which only dropout sets apart.
    `pair`: the two vectors of an example, such as those of its two sentences; all examples, or
    those whose label lies in the closed interval `labels`.

    Raises:
        ValueError: `labels` without pairs, or no interval; examples without exactly two vectors.

    >>> import torch
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
        self.n_views, self.needs = (1, "two_vectors") if self.of_pairs else (2, "rows")

    def __call__(
        self, views: Sequence[Sequence[Tensor]], labels_B: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """The pairs at each place."""
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
                    f"{list(vectors_BPD.shape)}; read a place that has two, or use "
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


class LossOfPairs:
    """An objective: the mean of a loss of rows and their positives over places.

    Args:
        weight: factor of the loss.
        reads: places, such as `pooled` or `layer_3/mean`.
        positives: which rows belong together.
        loss: of the two clouds `[N, D]` of a place.
        min_rows: a place with fewer pairs counts as 0, and in the counter `undefined`.
        scatter: so does one whose rows are equal.

    >>> LossOfPairs(1.0, ["pooled"], Positives("pair"), lambda x, y: (x - y).mean()).n_views
    1
    """

    n_views, needs = 2, "rows"

    def __init__(
        self,
        weight: float,
        reads: Sequence[str],
        positives: Positives,
        loss: Callable[[Tensor, Tensor], Tensor],
        min_rows: int = 2,
        scatter: bool = False,
    ) -> None:
        self.weight, self.reads, self.positives, self.loss = weight, reads, positives, loss
        self.n_views, self.needs = positives.n_views, positives.needs
        self.min_rows, self.scatter = min_rows, scatter
        self.counters: dict[str, Tensor] = {}

    def __call__(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        pairs = self.positives(views, labels)
        loss, self.counters = mean_loss(self.loss, pairs, self.min_rows, self.scatter)
        return loss
