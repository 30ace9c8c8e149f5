"""Base classes of extra losses: on point clouds and on pairs.

B examples, P vectors per example, N embeddings or pairs, D dimensions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.config.read_points import ReadPoint, read_point
from isotrain.geometry.rng import slices_of_step
from isotrain.geometry.rows import check_shape, has_scatter


class Objective(nn.Module, ABC):
    """An extra loss on embeddings of a batch, in one or more forward passes (views).

    A subclass defines `forward`, and overrides the members below where the defaults do not hold.

    Args:
        weight: factor of the loss in the sum of all losses; a negative one maximises it.
        reads: read points, such as `pooled` or `layer_3/tokens` (`isotrain/config/read_points.py`
            has them all); None = those of the class.
    """

    reads: Sequence[str] = ("pooled",)
    n_views: int = 1  # forward passes of a batch
    # Of an example: rows (any embeddings) | classes (one vector and its class) | pairs (two vectors
    # or more) | two_vectors | scored_pairs (two vectors and their label)
    needs: str = "rows"
    reads_start: bool = False  # `forward` gets the embeddings of the frozen start as its last view
    positives: Positives | None = None  # the pairs that it compares, if it does
    weight: float
    counters: dict[str, Tensor]  # of the last call, for the log

    def __init__(self, weight: float, reads: Sequence[str] | None = None) -> None:
        super().__init__()
        self.weight = weight
        if reads is not None:
            self.reads = reads
        self.counters = {}

    @abstractmethod
    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted scalar loss; 0 where it is not defined.

        Args:
            views: `views[v][r]` is view v at read point r: vectors `[B, P, D]`, or tokens
                `[N, D]`; of all processes, in float32 at least. With `reads_start` one more, last:
                that of the encoder as it started, without dropout, layers or gradient.
            labels: of the examples, `[B]`: class numbers or scores.
        """

    @property
    def read_points(self) -> list[ReadPoint]:
        """The parsed `reads`."""
        return [read_point(text) for text in self.reads]

    @property
    def remembers(self) -> bool:
        """Whether `observe` gets the embeddings of a step; otherwise its `views` are empty."""
        return type(self).observe is not Objective.observe

    def observe(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> None:
        """Remember a step; called once per optimizer step, with detached embeddings and labels."""

    def asks_for_pass(self, epoch: int) -> bool:
        """Whether to call `prepare` at the start of this epoch."""
        return False

    def prepare(self, epoch: int, reads: Iterable[Sequence[Tensor]]) -> None:
        """Read training batches in evaluation mode: one tensor for each read point."""


class Positives:
    """Positive pairs of embeddings `([N, D], [N, D])` at each read point.

    `dropout`: an embedding and itself in a second pass. `pair`: the two vectors of an example, of
    all examples or those whose label lies in the closed interval `labels`.

    Raises:
        ValueError: `labels` without pairs.

    >>> positives = Positives("pair", labels=(0.8, 1.0))
    >>> [(x, y)] = positives([[torch.eye(2)[None].repeat(2, 1, 1)]], torch.tensor([0.2, 0.9]))
    >>> x.tolist(), y.tolist()
    ([[1.0, 0.0]], [[0.0, 1.0]])
    """

    def __init__(self, kind: str, labels: Sequence[float] | None = None) -> None:
        self.of_pairs, self.labels = kind == "pair", labels
        if labels is not None and not self.of_pairs:  # every pair would be taken
            raise ValueError("positive_labels chooses pairs: use positives=pair, or leave it out")

    def __call__(
        self, views: Sequence[Sequence[Tensor]], labels_B: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """The pairs at each read point."""
        if self.of_pairs:
            pairs = [self.select(vectors_BPD, labels_B) for vectors_BPD in views[0]]
            return [(x_ND, y_ND) for x_ND, y_ND in (x_NPD.unbind(dim=1) for x_NPD in pairs)]
        return [
            (first.flatten(0, -2), second.flatten(0, -2))
            for first, second in zip(views[0], views[1], strict=True)
        ]

    def select(self, vectors_BPD: Tensor, labels_B: Tensor) -> Tensor:
        """The vectors `[N, P, D]` of the examples whose label lies in the interval."""
        if self.labels is None:
            return vectors_BPD
        low, high = self.labels
        return vectors_BPD[(labels_B >= low) & (labels_B <= high)]


def check_pairs(x_ND: Tensor, y_ND: Tensor, min_rows: int = 1) -> None:
    """Raise a ValueError unless both are `[N, D]` with N ≥ `min_rows`."""
    check_shape(x_ND, min_rows)
    if y_ND.shape != x_ND.shape:
        raise ValueError(
            f"pairs are one embedding for each, {tuple(x_ND.shape)}, got {tuple(y_ND.shape)}; "
            "repeat an embedding that is in several pairs"
        )


def mean_loss(
    loss: Callable[..., Tensor],
    clouds: Sequence[Sequence[Tensor]],
    min_rows: int = 2,
    scatter: bool = False,
    more: Sequence[Sequence[Any]] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean of `loss` over clouds, and the counter `undefined` of those without a loss.

    A cloud is one tensor `[N, D]` or several: the arguments of `loss`, followed by its entry in
    `more`. Its loss is 0, with a gradient of zeros, for fewer than `min_rows` embeddings. So it is
    for embeddings that are equal up to rounding, if `scatter` is needed.

    >>> clouds = [[torch.ones(3, 2)], [torch.ones(1, 2)]]
    >>> mean_loss(lambda x_ND: x_ND.sum(), clouds)
    (tensor(3.), {'undefined': tensor(1.)})
    """
    values, n_undefined = [], 0
    for cloud, extras in zip(clouds, more or [()] * len(clouds), strict=True):
        if all(len(x) >= min_rows and (not scatter or has_scatter(x.detach())) for x in cloud):
            values.append(loss(*cloud, *extras))
        else:
            values.append(0.0 * torch.stack([x.sum() for x in cloud]).sum())
            n_undefined += 1
    return torch.stack(values).mean(), {"undefined": torch.tensor(float(n_undefined))}


class LossOfClouds(Objective):
    """The mean of a loss over point clouds, by `mean_loss`: one cloud at each read point.

    A subclass may override `more` and `clouds_of`, by default the embeddings of view 0.

    Args: those of `Objective`, and
        loss: `[N, D] -> scalar`, of one or several tensors of a cloud.
        min_rows, scatter: what a cloud needs, as in `mean_loss`.
    """

    def __init__(
        self,
        weight: float,
        reads: Sequence[str],
        loss: Callable[..., Tensor],
        min_rows: int = 2,
        scatter: bool = False,
    ) -> None:
        super().__init__(weight, reads)
        self.loss, self.min_rows, self.scatter = loss, min_rows, scatter

    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        clouds = self.clouds_of(views, labels)
        extras = self.more(clouds)
        loss, self.counters = mean_loss(self.loss, clouds, self.min_rows, self.scatter, extras)
        return loss

    def clouds_of(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> Sequence[Sequence[Tensor]]:
        """The tensors `[N, D]` of each cloud."""
        return [[read.flatten(0, -2)] for read in views[0]]

    def more(self, clouds: Sequence[Sequence[Tensor]]) -> Sequence[Sequence[Any]] | None:
        """Further arguments of the loss, for each cloud. By default none."""
        return None


class Sliced(LossOfClouds):
    """A loss of random projections of the embeddings of view 0, averaged over the read points.

    The slices of an optimizer step are drawn from `seed` and the step number, a buffer: the same
    in every process and after resuming. A read point with a single embedding has loss 0 and
    increments the counter `undefined`.

    Args: those of `LossOfClouds`, whose loss takes the slices `[D, M]` as second argument, and
        n_slices: random directions per step.
        seed: of the slices.
    """

    remembers = False  # it counts steps only
    n_steps: Tensor

    def __init__(
        self,
        weight: float,
        reads: Sequence[str],
        loss: Callable[..., Tensor],
        n_slices: int,
        seed: int,
    ) -> None:
        super().__init__(weight, reads, loss)
        self.n_slices, self.seed = n_slices, seed
        self.register_buffer("n_steps", torch.tensor(0))

    def observe(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> None:
        """Count the optimizer step: the next one draws new slices."""
        self.n_steps += 1

    def more(self, clouds: Sequence[Sequence[Tensor]]) -> list[tuple[Tensor]]:
        """The unit directions `[D, M]` of this step, of the type and device of each cloud."""
        return [
            (slices_of_step(x_ND, self.n_slices, self.seed, self.n_steps),) for (x_ND,) in clouds
        ]


class LossOfPairs(LossOfClouds):
    """The mean over read points of a loss of positive pairs `([N, D], [N, D])`, by `mean_loss`.

    Args: those of `LossOfClouds`, and
        positives: dropout (an embedding in two passes) | pair (the two vectors of an example).
        positive_labels: of `pair`, the interval [low, high] of the labels that make a pair one
            (labels are class numbers, or scores scaled to [0, 1]); None = every pair.
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
        super().__init__(weight, reads, loss, min_rows, scatter)
        self.positives = Positives(positives, positive_labels)
        self.n_views, self.needs = (1, "two_vectors") if self.positives.of_pairs else (2, "rows")

    def clouds_of(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> Sequence[Sequence[Tensor]]:
        """The pairs at each read point."""
        return self.positives(views, labels)
