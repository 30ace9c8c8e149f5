"""A loss of several clouds, some of which may be too small to have one. N rows, D dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from isotrain.geometry.rows import has_scatter


def mean_loss(
    loss: Callable[..., Tensor],
    clouds: Sequence[Sequence[Tensor]],
    min_rows: int = 2,
    scatter: bool = False,
    more: Sequence[Sequence[Any]] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Mean of `loss` over clouds, and the count of those that have none and add a zero to it.

    A cloud is one tensor `[N, D]` or several, which `loss` takes with what `more` has for it. It
    has no loss with fewer than `min_rows` rows or, if `scatter` is needed, where its rows are
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


class LossOfClouds:
    """An objective: the mean of a loss over what view 0 has at each place.

    Args:
        weight: factor of the loss.
        reads: places, such as `pooled` or `all/tokens`.
        loss: of one cloud `[N, D]`.
        min_rows: a cloud with fewer counts as 0, and in the counter `undefined`.
        scatter: so does one whose rows are equal.

    >>> LossOfClouds(1.0, ["pooled"], lambda x_ND: x_ND.mean()).n_views
    1
    """

    n_views, needs = 1, "rows"

    def __init__(
        self,
        weight: float,
        reads: Sequence[str],
        loss: Callable[[Tensor], Tensor],
        min_rows: int = 2,
        scatter: bool = False,
    ) -> None:
        self.weight, self.reads, self.loss = weight, reads, loss
        self.min_rows, self.scatter = min_rows, scatter
        self.counters: dict[str, Tensor] = {}

    def __call__(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        clouds = [[x_ND] for cloud in views[0] for x_ND in self.clouds(cloud)]
        loss, self.counters = mean_loss(self.loss, clouds, self.min_rows, self.scatter)
        return loss

    def clouds(self, rows: Tensor) -> Sequence[Tensor]:
        """The clouds `[N, D]` of a place, from its `[B, P, D]` or `[N, D]`: here all rows."""
        return [rows.flatten(0, -2)]
