"""The life of an isotropy layer around its statistics: queue, training, frozen evaluation.

N rows, D width, M rows in the queue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from isotrain.arguments import Bounds
from isotrain.geometry.following import following
from isotrain.geometry.levels import energy_kept
from isotrain.geometry.rows import wide
from isotrain.transforms.base import EvalStats, RowTransform, TrainStats
from isotrain.transforms.queue import RowQueue, finite_labelled

Capacity = Annotated[int, Bounds(2)]  # rows of a queue
# `torch.compiler.disable`, but the compiler is imported at the first call: that takes 1.3 s.
not_compiled = _disable_dynamo


class _Statistics(Protocol):
    """A NamedTuple of tensors whose shapes follow from the layer's arguments.

    It may have `counters`, a dict of what was done, for the log.
    """

    def _asdict(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=_Statistics)


class FittedTransform(RowTransform, ABC, Generic[S]):
    """An isotropy layer `[N, D] -> [N, D]` of which a subclass gives `estimate` and `transform`.

    In training mode the statistics come from the rows themselves (`stats="batch"`) or from them
    and a queue of recent rows (`stats="queue"`). With a queue, the gradient of statistics is that
    of statistics of the rows alone (`following`), since the queue will follow the batches: an
    encoder that is rewarded for moving what the layer takes away later runs ahead of it. With
    `stats="start"` training and evaluation apply one map, of the first `fit` or of given rows.

    In evaluation mode they are frozen by `fit` (`eval_stats="frozen"`: a row's result does not
    depend on its batch-mates; `"refit"`: the same, and the trainer fits on all training rows, not
    on the queue) or taken from the batch (`eval_stats="batch"`). `forward` changes no state;
    `observe` feeds the queue. Half precision is computed in float32 and cast back, float64 stays;
    a row with a NaN is left out of all statistics. In training the counter `energy_kept` is the
    scatter of the results over that of the rows.

    `estimate` gives a NamedTuple of tensors; with a field `counters: dict[str, Tensor]` it says
    what was done, for the log.

    A layer with `reads_labels` takes the labels of the rows (`[N]`, integers for classes, floating
    for scores) as a second argument of `forward` in training, of `observe` and of `fit`;
    `estimate` gets them as `labels_N`. One that is `of_clusters` makes statistics follow the batch
    itself, and its `estimate` gets `n_own`.

    Args:
        width: D.
        empty: statistics of zeros; each tensor in them becomes a buffer of that name, which `fit`
            fills.
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).
        reads_labels: whether the statistics follow from labels too.

    Raises:
        ValueError: labels are missing, or `stats="start"` with `eval_stats="batch"`.
        RuntimeError: frozen evaluation before `fit`.

    >>> from typing import NamedTuple
    >>> class Stats(NamedTuple):
    ...     centre_D: Tensor
    >>> class Centred(FittedTransform[Stats]):
    ...     def __init__(self, width: int) -> None:
    ...         empty = Stats(torch.zeros(width))
    ...         super().__init__(width, empty, stats="batch", eval_stats="frozen", queue_rows=2)
    ...     def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> Stats:
    ...         return Stats(rows_ND.mean(dim=0))
    ...     def transform(self, rows_ND: Tensor, stats: Stats, are_last: bool) -> Tensor:
    ...         return rows_ND - stats.centre_D
    >>> layer = Centred(width=1)
    >>> layer(torch.tensor([[1.0], [3.0]])).tolist()  # less their own mean
    [[-1.0], [1.0]]
    >>> layer.fit(torch.tensor([[4.0], [6.0]]))
    >>> layer.eval()(torch.tensor([[1.0]])).tolist()  # less the mean that was frozen
    [[-4.0]]
    """

    of_clusters = False  # whether `estimate` takes `n_own`: the last rows that are the batch's
    is_fitted: Tensor

    def __init__(
        self,
        width: int,
        empty: S,
        stats: TrainStats,
        eval_stats: EvalStats,
        queue_rows: int,
        reads_labels: bool = False,
    ) -> None:
        super().__init__(width)
        if stats == "start" and eval_stats == "batch":
            raise ValueError(
                "stats=start freezes one map for training and evaluation, and eval_stats=batch "
                "would not apply it; use eval_stats=frozen or refit"
            )
        self.stats, self.eval_stats = stats, eval_stats
        self.reads_labels = reads_labels or type(self).reads_labels
        self.queue = RowQueue(queue_rows, width, has_labels=self.reads_labels)
        self._empty = empty
        self._names: list[str] = []
        self.add_statistics(**empty._asdict())
        self.register_buffer("is_fitted", torch.tensor(False))
        self._n_forward = 0  # rows of the largest training batch since the last `observe`

    def add_statistics(self, **empty: Any) -> None:
        """Statistics that `fit` is to freeze, zeros so far: each tensor becomes a buffer."""
        self._empty = self._empty._replace(**empty)  # type: ignore[attr-defined]
        for name, x in empty.items():
            if isinstance(x, Tensor):
                self._names.append(name)
                self.register_buffer(name, x)

    @abstractmethod
    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> S:
        """Statistics of finite float32 or float64 rows, N ≥ 1; `to_freeze`: for evaluation."""

    @abstractmethod
    def transform(self, rows_ND: Tensor, stats: S, are_last: bool) -> Tensor:
        """Transformed rows; `are_last`: they end the rows that `stats` were estimated from."""

    def follow(self, rows_MD: Tensor, labels_M: Tensor | None) -> None:
        """Take what later estimates start from out of the queue's rows; nothing, by default."""

    def forward(self, x_ND: Tensor, labels_N: Tensor | None = None) -> Tensor:
        """Transformed rows; the class says where the statistics come from."""
        self._check_width(x_ND)
        with torch.autocast(x_ND.device.type, enabled=False):
            rows_ND, are_last = wide(x_ND), False
            if self._applies_frozen():
                stats = self._frozen(rows_ND.dtype)
            else:
                found, are_last = self._of_batch(rows_ND, labels_N)
                if found is None:  # nothing to estimate from
                    self.counters = {}
                    return x_ND
                stats = found
            result_ND = self.transform(rows_ND, stats, are_last)
            self._count(rows_ND, result_ND, stats)
            return result_ND.to(x_ND.dtype)

    @torch.no_grad()
    def observe(self, x_ND: Tensor, labels_N: Tensor | None = None) -> None:
        """Push rows into the queue, and `follow` it."""
        self._check_width(x_ND)
        rows_ND = wide(x_ND)
        self.queue.push(rows_ND, self._n_forward or len(x_ND), self._known(rows_ND, labels_N))
        self._n_forward = 0
        rows_MD = wide(self.queue.rows())
        if len(rows_MD):
            with torch.autocast(rows_MD.device.type, enabled=False):
                self.follow(rows_MD, self.queue.labels())

    @torch.no_grad()
    def fit(self, x_ND: Tensor | None = None, labels_N: Tensor | None = None) -> None:
        """Freeze the statistics of evaluation: of the given finite rows, or of the queue.

        Under `stats="start"` a call without rows changes nothing once they are frozen.
        """
        if x_ND is None and not self.needs_fit():
            return
        if x_ND is None:
            rows_ND, known_N = wide(self.queue.rows()), self.queue.labels()
        else:
            self._check_width(x_ND)
            rows_ND = wide(x_ND.detach())
            rows_ND, known_N = finite_labelled(rows_ND, self._known(rows_ND, labels_N))
        if len(rows_ND) == 0:
            raise RuntimeError("fit needs rows: call observe(rows) first, or fit(rows)")
        with torch.autocast(rows_ND.device.type, enabled=False):
            stats = self._estimate(rows_ND, len(rows_ND), known_N, to_freeze=True)
        for name in self._names:
            if (value := getattr(stats, name)) is not None:  # None: this layer has no such part
                self.get_buffer(name).copy_(value)
        self.is_fitted.fill_(True)

    def _applies_frozen(self) -> bool:
        if not self.training:
            return self.eval_stats != "batch"
        if self.stats != "start":
            return False
        if not bool(self.is_fitted) and torch.is_grad_enabled():
            raise RuntimeError(
                "stats=start trains behind one fixed map: call fit(rows) first (the trainer does "
                "so before the first evaluation), or set stats=queue"
            )
        return bool(self.is_fitted)  # the trainer looks at rows before it has fitted, without grad

    def needs_fit(self) -> bool:
        """False where one map trains and evaluates, and is fitted already."""
        return not (self.stats == "start" and bool(self.is_fitted))

    def recent_rows(self) -> Tensor:
        """The rows of the queue, `[≤ M, D]`."""
        return self.queue.rows()

    @not_compiled
    def _of_batch(self, rows_ND: Tensor, labels_N: Tensor | None) -> tuple[S | None, bool]:
        """Statistics of the rows, with the queue if asked; whether the rows are all finite.

        What is done depends on the data: a compiler would make a graph for each case.
        """
        own_ND, own_N = finite_labelled(rows_ND, self._known(rows_ND, labels_N))
        n_own = len(own_ND)
        if n_own == 0:
            return None, False
        recent = self.training and self.stats == "queue"
        past_MD = self.queue.rows().to(own_ND.dtype) if recent else own_ND[:0]
        past_M, all_N = self.queue.labels(), own_N
        if recent and past_M is not None and own_N is not None:
            all_N = torch.cat([past_M.to(own_N.dtype), own_N])
        stats = self._estimate(torch.cat([past_MD, own_ND]), n_own, all_N)
        return stats, n_own == len(rows_ND)

    @not_compiled
    def _count(self, rows_ND: Tensor, result_ND: Tensor, stats: S) -> None:
        self.counters = dict(getattr(stats, "counters", {}))
        if self.training:
            self._n_forward = max(self._n_forward, len(rows_ND))
            self.counters["energy_kept"] = energy_kept(rows_ND, result_ND)

    def _estimate(
        self, rows_ND: Tensor, n_own: int, labels_N: Tensor | None, to_freeze: bool = False
    ) -> S:
        known = {"labels_N": labels_N} if self.reads_labels else {}
        if self.of_clusters:
            return self.estimate(rows_ND, to_freeze, n_own=n_own, **known)  # type: ignore[call-arg]
        return self.estimate(following(rows_ND, n_own), to_freeze, **known)

    def _check_width(self, x_ND: Tensor) -> None:
        if x_ND.ndim != 2 or x_ND.shape[1] != self.width:
            raise ValueError(
                f"rows must be [N, {self.width}], got shape {tuple(x_ND.shape)}; flatten tokens "
                "and leave out pads, or make the layer with their width"
            )

    def _known(self, x_ND: Tensor, labels_N: Tensor | None) -> Tensor | None:
        """The labels where the layer reads them: classes as int64, scores as the rows' type."""
        if not self.reads_labels:
            return None
        if labels_N is None or labels_N.shape != x_ND.shape[:1]:
            given = "none" if labels_N is None else f"shape {tuple(labels_N.shape)}"
            raise ValueError(
                f"this layer reads labels, one a row: give [N] = [{len(x_ND)}] of them as second "
                f"argument, as in layer(rows, labels) or layer.observe(rows, labels), got {given}"
            )
        labels_N = labels_N.detach().to(x_ND.device)
        return labels_N.to(x_ND.dtype) if labels_N.is_floating_point() else labels_N.long()

    def _frozen(self, dtype: torch.dtype) -> S:
        if not bool(self.is_fitted):
            raise RuntimeError(
                "frozen evaluation needs statistics: call fit() after observing rows (the "
                "trainer does so before each evaluation), or set eval_stats=batch"
            )
        frozen: dict[str, Any] = {name: self.get_buffer(name).to(dtype) for name in self._names}
        if hasattr(self._empty, "counters"):
            frozen["counters"] = {}
        return self._empty._replace(**frozen)  # type: ignore[no-any-return, attr-defined]
