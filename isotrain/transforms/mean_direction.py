"""Removal of the mean direction, as an isotropy layer. N embeddings, D width."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.rows import has_scatter
from isotrain.transforms.fitted import FittedTransform


@dataclass(frozen=True)
class MeanDirectionStats:
    """The unit vector m̂ along the mean; zeros where nothing is removed."""

    direction_D: Tensor
    counters: dict[str, Tensor]


class MeanDirection(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: project off the mean direction.

    y = x − (x·m̂) m̂, m̂ = m/‖m‖ of the mean m of all embeddings as they are. Unlike `Mean`, it
    deletes what embeddings vary by along m̂, and is no translation: cosines of the results depend
    on m̂ alone, not on ‖m‖. A cloud without scatter passes unchanged, and is counted; m = 0 removes
    nothing. Equivariant to rotation and uniform scale. The direction is detached.

    Ren, Sun and Liang 2025 (R2, after training there).

    >>> MeanDirection(width=2, stats="batch")(torch.tensor([[1.0, 2.0], [3.0, -2.0]])).tolist()
    [[0.0, 2.0], [0.0, -2.0]]
    """

    def __init__(self, width: int, **statistics: Any) -> None:
        super().__init__(width, MeanDirectionStats(torch.zeros(width), {}), **statistics)

    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> MeanDirectionStats:
        """The direction of the mean."""
        x_ND = x_ND.detach()
        n_removed = float(has_scatter(x_ND))
        direction_D = unit_rows(x_ND.mean(dim=0, keepdim=True))[0] * n_removed
        n_passed = torch.tensor((1.0 - n_removed) * len(x_ND))
        return MeanDirectionStats(direction_D, {"rows_passed_through": n_passed})

    def transform(self, x_ND: Tensor, stats: MeanDirectionStats, are_last: bool) -> Tensor:
        """x − (x·m̂) m̂."""
        return x_ND - (x_ND @ stats.direction_D)[:, None] * stats.direction_D
