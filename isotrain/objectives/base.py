"""The contract of extra losses, and what losses of clouds and losses of pairs share.

B examples, P vectors per example, N embeddings, D dimensions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.arguments import refuse_misspelt
from isotrain.geometry.rows import has_scatter
from isotrain.objectives.pairs import Positives
from isotrain.transforms.queue import RowQueue


class Objective(nn.Module, ABC):
    """An extra loss on embeddings of a batch, in one or more forward passes (views).

    A subclass defines `forward`, and overrides the members below where the defaults do not hold.

    Args:
        weight: factor of the loss in the sum of all losses.
        reads: read points, such as `pooled` or `layer_3/tokens` (`isotrain/config/read_points.py`
            has them all); None = those of the class.
    """

    reads: Sequence[str] = ("pooled",)
    n_views: int = 1  # forward passes of a batch
    # What it reads of an example: rows (anything) | classes (one vector, which owns a class)
    # | pairs (two vectors or more) | two_vectors | scored_pairs (two vectors and the label)
    needs: str = "rows"
    positives: Positives | None = None  # how it chooses pairs; its interval must hold a label
    weight: float
    memory: RowQueue | None  # embeddings of past steps; must not reach back a whole epoch
    counters: dict[str, Tensor]  # what the last call left out, for the log

    def __init__(self, weight: float, reads: Sequence[str] | None = None) -> None:
        super().__init__()
        self.weight = weight
        if reads is not None:
            self.reads = reads
        self.memory = None  # of the instance: a class attribute would hide a module of that name
        self.counters = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_misspelt(cls, Objective)

    @abstractmethod
    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted scalar loss; 0 where it is not defined.

        Args:
            views: `views[v][r]` is what view v has at read point r: vectors `[B, P, D]`, or tokens
                `[N, D]`. In float32 at least; with several processes of all of them.
            labels: of the examples, `[B]`: class numbers or scores.
        """

    def check(self, n_vectors: int) -> None:
        """Raise a ValueError where it cannot use examples of so many vectors."""

    @property
    def remembers(self) -> bool:
        """Whether `observe` gets the embeddings of a step; if not, its `views` are empty."""
        return type(self).observe is not Objective.observe

    def observe(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> None:
        """Called once per optimizer step, with its detached embeddings and labels."""

    def n_remembered(self, n_vectors: int) -> int:
        """How many of the vectors of an example the memory takes."""
        return n_vectors

    def asks_for_pass(self, epoch: int) -> bool:
        """Whether `prepare` is to be called at the start of this epoch."""
        return False

    def prepare(self, epoch: int, reads: Iterable[Sequence[Tensor]]) -> None:
        """Read training batches in evaluation mode: one tensor for each read point."""


def mean_loss(
    loss: Callable[..., Tensor],
    clouds: Sequence[Sequence[Tensor]],
    min_rows: int = 2,
    scatter: bool = False,
    more: Sequence[Sequence[Any]] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean of `loss` over clouds, and how many have none and add a zero.

    A cloud is one tensor `[N, D]` or several, which `loss` takes with what `more` has for it. It
    has no loss with fewer than `min_rows` embeddings or, if `scatter` is needed, where they are
    equal up to rounding. The zero has a graph, so the backward pass finds a gradient of zeros.

    >>> clouds = [[torch.ones(3, 2)], [torch.ones(1, 2)]]
    >>> mean_loss(lambda x_ND: x_ND.sum(), clouds)
    (tensor(3.), {'undefined': tensor(1.)})
    """
    further = more or [()] * len(clouds)
    defined = [
        all(
            len(x_ND) >= min_rows and not (scatter and not has_scatter(x_ND.detach())) for x_ND in c
        )
        for c in clouds
    ]
    values = [
        loss(*rows, *known) if is_defined else 0.0 * torch.stack([x.sum() for x in rows]).sum()
        for rows, known, is_defined in zip(clouds, further, defined, strict=True)
    ]
    return torch.stack(values).mean(), {"undefined": torch.tensor(float(defined.count(False)))}


class LossOfClouds(Objective):
    """The mean of a loss over what view 0 has at each read point, `[B, P, D]` or `[N, D]`.

    A point cloud with fewer than `min_rows` embeddings or, if `scatter` is needed, of equal ones,
    counts as 0, and in the counter `undefined`.

    Args:
        weight: factor of the loss; a negative one drives it up.
        reads: read points, such as `pooled` or `all/tokens`.
        loss: of one point cloud `[N, D]`.
        min_rows: embeddings that it needs.
        scatter: whether they must differ.

    >>> LossOfClouds(1.0, ["pooled"], lambda x_ND: x_ND.mean()).n_views
    1
    """

    def __init__(
        self,
        weight: float,
        reads: Sequence[str],
        loss: Callable[[Tensor], Tensor],
        min_rows: int = 2,
        scatter: bool = False,
    ) -> None:
        super().__init__(weight, reads)
        self.loss, self.min_rows, self.scatter = loss, min_rows, scatter

    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        clouds = [[x_ND] for read in views[0] for x_ND in self.clouds(read)]
        loss, self.counters = mean_loss(self.loss, clouds, self.min_rows, self.scatter)
        return loss

    def clouds(self, read: Tensor) -> Sequence[Tensor]:
        """The point clouds `[N, D]` of a read point, from its `[B, P, D]` or `[N, D]`: one."""
        return [read.flatten(0, -2)]


class LossOfPairs(Objective):
    """The mean of a loss of embeddings `[N, D]` and their positives over the read points.

    A read point with fewer than `min_rows` pairs or, if `scatter` is needed, of equal embeddings,
    counts as 0, and in the counter `undefined`.

    Args:
        weight: factor of the loss; a negative one drives it up.
        reads: read points, such as `pooled` or `layer_3/mean`.
        positives: dropout (an embedding in two passes) | pair (the two vectors of an example).
        positive_labels: of `pair`, the interval [low, high] of the labels that make a pair one
            (labels are class numbers, or scores scaled to [0, 1]); None = every pair.
        loss: of the two clouds `[N, D]` of a read point.
        min_rows: pairs that it needs.
        scatter: whether they must differ.

    Raises:
        ValueError: `positive_labels` without pairs, or that are no interval; in use, with `pair`,
            examples of other than two vectors.

    >>> LossOfPairs(1.0, ["pooled"], "pair", None, lambda x, y: (x - y).mean()).n_views
    1
    """

    positives: Positives

    def __init__(
        self,
        weight: float,
        reads: Sequence[str],
        positives: str,
        positive_labels: Sequence[float] | None,
        loss: Callable[[Tensor, Tensor], Tensor],
        min_rows: int = 2,
        scatter: bool = False,
    ) -> None:
        super().__init__(weight, reads)
        self.positives = Positives(positives, positive_labels)
        self.n_views, self.needs = (1, "two_vectors") if self.positives.of_pairs else (2, "rows")
        self.loss, self.min_rows, self.scatter = loss, min_rows, scatter

    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        pairs = self.positives(views, labels)
        loss, self.counters = mean_loss(self.loss, pairs, self.min_rows, self.scatter)
        return loss
