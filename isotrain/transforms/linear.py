"""What the whitening layers share: one map of all rows, a centre and a matrix. N rows, D width."""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.whitening import WhiteningStats, apply_whitening
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import FittedTransform


class LinearTransform(FittedTransform[WhiteningStats]):
    """An isotropy layer `[N, D] -> [N, D]`, (x − centre) @ matrix; a subclass gives `estimate`.

    Arguments and errors as `FittedTransform`.

    >>> class Halved(LinearTransform):
    ...     def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> WhiteningStats:
    ...         return WhiteningStats(rows_ND.mean(dim=0), torch.eye(1) / 2, {})
    >>> layer = Halved(width=1, stats="batch", eval_stats="frozen", queue_rows=2)
    >>> layer(torch.tensor([[1.0], [5.0]])).tolist()
    [[-1.0], [1.0]]
    """

    centre_D: Tensor
    matrix_DD: Tensor

    def __init__(
        self, width: int, stats: TrainStats, eval_stats: EvalStats, queue_rows: int
    ) -> None:
        empty = WhiteningStats(torch.zeros(width), torch.zeros(width, width), {})
        super().__init__(width, empty, stats, eval_stats, queue_rows)

    def transform(self, rows_ND: Tensor, stats: WhiteningStats, are_last: bool) -> Tensor:
        """Whitened rows."""
        return apply_whitening(rows_ND, stats)
