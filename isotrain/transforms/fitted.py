"""The life of an isotropy layer around its statistics: queue, training, frozen evaluation.

N rows, D width, M rows in the queue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from isotrain.geometry.rows import finite_rows, wide
from isotrain.transforms.row_queue import RowQueue

TrainStats = Literal["batch", "queue"]
EvalStats = Literal["frozen", "batch"]


class _Statistics(Protocol):
    """A NamedTuple: tensors of shapes that follow from the layer's arguments; `counters`."""

    @property
    def counters(self) -> dict[str, Tensor]:
        """What was done, for the log."""

    def _asdict(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=_Statistics)


class FittedTransform(nn.Module, ABC, Generic[S]):
    """An isotropy layer `[N, D] -> [N, D]` of which a subclass gives `estimate` and `transform`.

    In training mode the statistics come from the rows themselves (`stats="batch"`) or from them
    and a queue of recent rows (`stats="queue"`). In evaluation mode they are frozen by `fit`
    (`eval_stats="frozen"`: a row's result does not depend on its batch-mates) or taken from the
    batch (`eval_stats="batch"`). `forward` changes no state; `observe` feeds the queue. Half
    precision is computed in float32 and cast back, float64 stays; a row with a NaN is left out of
    all statistics.

    Args:
        width: D.
        empty: statistics of zeros; each tensor in them becomes a buffer of that name, which `fit`
            fills.
        stats: batch | queue, the source of training statistics.
        eval_stats: frozen | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).

    Raises:
        RuntimeError: frozen evaluation before `fit`.
    """

    has_statistics = True

    is_fitted: Tensor

    def __init__(
        self, width: int, empty: S, stats: TrainStats, eval_stats: EvalStats, queue_rows: int
    ) -> None:
        super().__init__()
        self.stats, self.eval_stats = stats, eval_stats
        self.counters: dict[str, Tensor] = {}
        self.queue = RowQueue(queue_rows, width)
        self._statistics: Callable[..., S] = type(empty)
        self._names = [name for name, x in empty._asdict().items() if isinstance(x, Tensor)]
        for name in self._names:
            self.register_buffer(name, getattr(empty, name))
        self.register_buffer("is_fitted", torch.tensor(False))

    @abstractmethod
    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> S:
        """Statistics of finite float32 or float64 rows, N ≥ 1; `to_freeze`: for evaluation."""

    @abstractmethod
    def transform(self, rows_ND: Tensor, stats: S, are_last: bool) -> Tensor:
        """Transformed rows; `are_last`: they end the rows that `stats` were estimated from."""

    def follow(self, rows_MD: Tensor) -> None:
        """Take what later estimates start from out of the queue's rows; nothing, by default."""

    def forward(self, x_ND: Tensor) -> Tensor:
        """Transformed rows; the class says where the statistics come from."""
        with torch.autocast(x_ND.device.type, enabled=False):
            rows_ND, are_last = wide(x_ND), False
            if not self.training and self.eval_stats == "frozen":
                stats = self._frozen(rows_ND.dtype)
            else:
                finite_ND = finite_rows(rows_ND)
                if len(finite_ND) == 0:  # nothing to estimate from
                    self.counters = {}
                    return x_ND
                recent = self.training and self.stats == "queue"
                known_ND = self.queue.rows().to(rows_ND.dtype) if recent else finite_ND[:0]
                stats = self.estimate(torch.cat([known_ND, finite_ND]))
                are_last = len(finite_ND) == len(rows_ND)
            self.counters = stats.counters
            return self.transform(rows_ND, stats, are_last).to(x_ND.dtype)

    @torch.no_grad()
    def observe(self, x_ND: Tensor) -> None:
        """Push rows into the queue, and `follow` it."""
        self.queue.push(x_ND)
        rows_MD = wide(self.queue.rows())
        if len(rows_MD):
            with torch.autocast(rows_MD.device.type, enabled=False):
                self.follow(rows_MD)

    @torch.no_grad()
    def fit(self, x_ND: Tensor | None = None) -> None:
        """Freeze the statistics of evaluation: of the given finite rows, or of the queue."""
        rows_ND = finite_rows(wide(self.queue.rows() if x_ND is None else x_ND.detach()))
        if len(rows_ND) == 0:
            raise RuntimeError("fit needs rows: call observe(rows) first, or fit(rows)")
        with torch.autocast(rows_ND.device.type, enabled=False):
            stats = self.estimate(rows_ND, to_freeze=True)
        for name in self._names:
            self.get_buffer(name).copy_(getattr(stats, name))
        self.is_fitted.fill_(True)

    def _frozen(self, dtype: torch.dtype) -> S:
        if not bool(self.is_fitted):
            raise RuntimeError(
                "frozen evaluation needs statistics: call fit() after observing rows (the "
                "trainer does so before each evaluation), or set eval_stats=batch"
            )
        frozen = {name: self.get_buffer(name).to(dtype) for name in self._names}
        return self._statistics(**frozen, counters={})
