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
