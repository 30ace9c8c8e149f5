"""Layers with batch or queue statistics. N embeddings, D width, M embeddings in the queue."""

from abc import ABC, abstractmethod
from dataclasses import replace
from inspect import Signature, signature
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch._compile import _disable_dynamo

from isotrain.arguments import checked
from isotrain.geometry.kmeans import straight_through
from isotrain.geometry.rows import wide
from isotrain.geometry.spectra import energy_kept
from isotrain.geometry.whitening import WhiteningStats, apply_whitening
from isotrain.transforms.base import EvalStats, RowTransform, TrainStats
from isotrain.transforms.queue import Capacity, RowQueue, finite_labelled

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
# `torch.compiler.disable`, but the compiler is imported on the first call, which takes 1.3 s.
# For data-dependent code: a compiler would make a graph for each case.
not_compiled = _disable_dynamo


class FittedTransform(RowTransform, ABC):
    """An isotropy layer `[N, D] -> [N, D]`; a subclass defines `estimate` and `transform`.

    Statistics are a dataclass of tensors, and of `counters`, a dict for the log. A subclass passes
    `**statistics` on: its signature then shows `stats`, `eval_stats` and `queue_rows`.

    `forward` changes no state; `observe` feeds a queue of recent embeddings. Half precision is
    computed in float32 and cast back, float64 is kept. An embedding with a NaN is left out of all
    statistics. In training the counter `energy_kept` is the scatter of the output relative to that
    of the input.

    A layer with `reads_labels` takes labels (`[N]`, integers for classes, floating for scores) as
    second argument of `forward` in training, of `observe` and of `fit`; `estimate` gets them as
    `labels_N`. One that is `of_clusters` applies `straight_through` itself: its `estimate` gets
    `n_new`.

    Args:
        width: D.
        empty: statistics of zeros; each tensor becomes a buffer of that name, which `fit` fills.
        stats: source of training statistics. batch | queue = the batch and recent embeddings, with
            the gradient of the batch's statistics (`straight_through`): the queue will follow the
            batches, so moving what the layer removes must not be rewarded | start = one map for
            training and evaluation, of the first `fit`.
        eval_stats: frozen = by `fit`, so a result does not depend on its batch | refit = frozen,
            on the whole training set and not the queue | batch.
        queue_rows: embeddings in the queue (queue_rows·D·4 bytes).

    Raises:
        ValueError: labels are missing, or `stats="start"` with `eval_stats="batch"`.
        RuntimeError: frozen evaluation before `fit`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Stats:
    ...     centre_D: Tensor
    ...     counters: dict[str, Tensor]
    >>> class Centred(FittedTransform):
    ...     def __init__(self, width: int, **statistics: Any) -> None:
    ...         super().__init__(width, Stats(torch.zeros(width), {}), **statistics)
    ...     def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> Stats:
    ...         return Stats(x_ND.mean(dim=0), {})
    ...     def transform(self, x_ND: Tensor, stats: Stats, are_last: bool) -> Tensor:
    ...         return x_ND - stats.centre_D
    >>> layer = Centred(width=1, stats="batch")
    >>> layer(torch.tensor([[1.0], [3.0]])).tolist()  # less their own mean
    [[-1.0], [1.0]]
    >>> layer.fit(torch.tensor([[4.0], [6.0]]))
    >>> layer.eval()(torch.tensor([[1.0]])).tolist()  # less the mean that was frozen
    [[-4.0]]
    """

    of_clusters = False  # whether `estimate` takes `n_new`, the number of trailing batch embeddings
    __signature__: ClassVar[Signature]
    is_fitted: Tensor

    def __init_subclass__(cls) -> None:
        """Name the arguments of statistics in the signature of a class that passes them on."""
        super().__init_subclass__()
        own = dict(list(signature(cls.__init__).parameters.items())[1:])  # without `self`
        if own.pop("statistics", None):
            _, _, *more = signature(FittedTransform).parameters.values()  # without `width`, `empty`
            cls.__signature__ = Signature([*own.values(), *(p for p in more if p.name not in own)])

    @checked
    def __init__(
        self,
        width: Positive,
        empty: Any,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
    ) -> None:
        super().__init__(width)
        if stats == "start" and eval_stats == "batch":
            raise ValueError(
                "stats=start freezes one map for training and evaluation, and eval_stats=batch "
                "would not apply it; use eval_stats=frozen or refit"
            )
        self.stats, self.eval_stats = stats, eval_stats
        self.queue = RowQueue(queue_rows, width, has_labels=self.reads_labels)
        self._empty = empty
        self._names = [name for name, x in vars(empty).items() if isinstance(x, Tensor)]
        for name in self._names:
            self.register_buffer(name, getattr(empty, name))
        self.register_buffer("is_fitted", torch.tensor(False))
        self._n_forward = 0  # embeddings of the largest training batch since the last `observe`

    @abstractmethod
    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> Any:
        """Statistics of N ≥ 1 finite float32 or float64 embeddings; `to_freeze`: for evaluation."""

    @abstractmethod
    def transform(self, x_ND: Tensor, stats: Any, are_last: bool) -> Tensor:
        """The result; `are_last`: `stats` were estimated from embeddings that end with `x_ND`."""

    def follow(self, x_MD: Tensor, labels_M: Tensor | None) -> None:
        """Update the initial values of later estimates. By default a no-op."""

    def forward(self, x_ND: Tensor, labels_N: Tensor | None = None) -> Tensor:
        """The transformed embeddings."""
        self._check_width(x_ND)
        with torch.autocast(x_ND.device.type, enabled=False):
            wide_ND = wide(x_ND)
            if self._applies_frozen():
                stats, are_last = self._frozen(wide_ND.dtype), False
            else:
                stats, are_last = self._of_batch(wide_ND, labels_N)
            if stats is None:  # nothing to estimate from
                self.counters = {}
                return x_ND
            result_ND = self.transform(wide_ND, stats, are_last)
            self._count(wide_ND, result_ND, stats)
            return result_ND.to(x_ND.dtype)

    @torch.no_grad()
    def observe(self, x_ND: Tensor, labels_N: Tensor | None = None) -> None:
        """Push embeddings into the queue, and `follow` it."""
        self._check_width(x_ND)
        wide_ND = wide(x_ND)
        labels_N = self._checked_labels(wide_ND, labels_N)
        self.queue.push(wide_ND, self._n_forward or len(x_ND), labels_N)
        self._n_forward = 0
        recent_MD = wide(self.queue.rows())
        if len(recent_MD):
            with torch.autocast(recent_MD.device.type, enabled=False):
                self.follow(recent_MD, self.queue.labels())

    @torch.no_grad()
    def fit(self, x_ND: Tensor | None = None, labels_N: Tensor | None = None) -> None:
        """Freeze the statistics of these embeddings, or else of the queue (`start`: only once)."""
        if x_ND is None and not self.needs_fit():
            return
        if x_ND is None:
            wide_ND, target_N = wide(self.queue.rows()), self.queue.labels()
        else:
            self._check_width(x_ND)
            wide_ND = wide(x_ND.detach())
            wide_ND, target_N = finite_labelled(wide_ND, self._checked_labels(wide_ND, labels_N))
        if len(wide_ND) == 0:
            raise RuntimeError("fit needs embeddings: call observe(x) first, or fit(x)")
        with torch.autocast(wide_ND.device.type, enabled=False):
            stats = self._estimate(wide_ND, len(wide_ND), target_N, to_freeze=True)
        for name in self._names:
            self.get_buffer(name).copy_(getattr(stats, name))
        self.is_fitted.fill_(True)

    def needs_fit(self) -> bool:
        """False if one map is used in training and evaluation and is already fitted."""
        return not (self.stats == "start" and bool(self.is_fitted))

    def recent_rows(self) -> Tensor:
        """The embeddings in the queue, `[≤ M, D]`."""
        return self.queue.rows()

    def _applies_frozen(self) -> bool:
        if not self.training:
            return self.eval_stats != "batch"
        if self.stats != "start":
            return False
        # Before the first fit the trainer collects embeddings, without gradient.
        return torch.is_grad_enabled() or bool(self.is_fitted)

    def _frozen(self, dtype: torch.dtype) -> Any:
        if not bool(self.is_fitted):
            raise RuntimeError(
                "there are no frozen statistics: call fit() after observing embeddings, or fit(x), "
                "as isotrain's runs and FitLayers do before an evaluation; or set stats=queue, "
                "eval_stats=batch"
            )
        buffers = {name: self.get_buffer(name).to(dtype) for name in self._names}
        return replace(self._empty, counters={}, **buffers)

    @not_compiled
    def _of_batch(self, x_ND: Tensor, labels_N: Tensor | None) -> tuple[Any, bool]:
        """Statistics of the batch or batch and queue, and whether the batch is all finite."""
        batch_ND, target_N = finite_labelled(x_ND, self._checked_labels(x_ND, labels_N))
        n_new = len(batch_ND)
        if n_new == 0:
            return None, False
        queue_MD, queue_M = batch_ND[:0], None
        if self.training and self.stats == "queue":
            queue_MD, queue_M = self.queue.rows().to(batch_ND.dtype), self.queue.labels()
        if queue_M is not None and target_N is not None:
            target_N = torch.cat([queue_M.to(target_N.dtype), target_N])
        return self._estimate(torch.cat([queue_MD, batch_ND]), n_new, target_N), n_new == len(x_ND)

    @not_compiled
    def _count(self, x_ND: Tensor, result_ND: Tensor, stats: Any) -> None:
        self.counters = dict(stats.counters)
        if self.training:
            self._n_forward = max(self._n_forward, len(x_ND))
            self.counters["energy_kept"] = energy_kept(x_ND, result_ND)

    def _estimate(
        self, x_ND: Tensor, n_new: int, labels_N: Tensor | None, to_freeze: bool = False
    ) -> Any:
        options: dict[str, Any] = {"labels_N": labels_N} if self.reads_labels else {}
        if self.of_clusters:
            options["n_new"] = n_new
        else:
            x_ND = straight_through(x_ND, n_new)
        return self.estimate(x_ND, to_freeze, **options)

    def _checked_labels(self, x_ND: Tensor, labels_N: Tensor | None) -> Tensor | None:
        """The labels if the layer reads them: classes as int64, scores in the dtype of `x`."""
        if not self.reads_labels:
            return None
        if labels_N is None or labels_N.shape != x_ND.shape[:1]:
            shape = "none" if labels_N is None else f"shape {tuple(labels_N.shape)}"
            raise ValueError(
                f"this layer reads labels, one per embedding: give [N] = [{len(x_ND)}] of them as "
                f"second argument, as in layer(x, labels) or layer.observe(x, labels), got {shape}"
            )
        labels_N = labels_N.detach().to(x_ND.device)
        return labels_N.to(x_ND.dtype) if labels_N.is_floating_point() else labels_N.long()


class LinearTransform(FittedTransform):
    """One map for all embeddings: (x − centre) @ matrix, `[N, D]`; a subclass gives `estimate`."""

    centre_D: Tensor
    matrix_DD: Tensor

    def __init__(self, width: int, **statistics: Any) -> None:
        empty = WhiteningStats(torch.zeros(width), torch.zeros(width, width), {})
        super().__init__(width, empty, **statistics)

    def transform(self, x_ND: Tensor, stats: WhiteningStats, are_last: bool) -> Tensor:
        """Whitened embeddings."""
        return apply_whitening(x_ND, stats)
