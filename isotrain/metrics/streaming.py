"""Metrics over batches, on one process or P. M embeddings kept, V numbers of the moments."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.moments import Moments, empty_moments, merged
from isotrain.geometry.rows import check_shape, hash_ids
from isotrain.metrics.suite import HEADLINE, named, needs, suite

EMPTY = float(1 << 31)  # upper half of the hash in an empty slot: above any embedding's
OF_ROW = 6  # columns before the embedding: upper and lower half of its hash, label and group


class StreamingSuite(Metric):
    """A torchmetrics metric: the values of `suite` over all embeddings so far.

    Metrics that follow from moments (IsoScore, the spectrum, mean cosine, outlier dimensions) are
    exact in O(D²) memory, for any split into batches and processes. The others see the `max_rows`
    embeddings with the lowest id hashes: the same ones for any order, batch size and number of
    processes, each id once (moments count repeats).

    Args:
        width: D of the embeddings `[N, D]` that `update` takes.
        metrics: names of files in `isotrain.metrics`, or functions by name.
        max_rows: M; 0 = moments only.
        refused: as in `suite`, for `compute`; `forward` always skips undefined metrics.

    Raises:
        ValueError: a metric of two clouds, or one that needs embeddings when `max_rows` is 0.

    >>> stream = StreamingSuite(width=2, metrics=["isoscore"], max_rows=0)
    >>> stream.update(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    >>> stream.update(torch.tensor([[0.0, 1.0], [0.0, -1.0]]))
    >>> stream.compute()["isoscore"].item()
    1.0
    """

    full_state_update = False
    higher_is_better = None
    is_differentiable = False
    packed: Tensor
    kept: Tensor

    def __init__(
        self,
        width: int,
        metrics: Iterable[str] | Mapping[str, Callable[..., Any]] = HEADLINE,
        max_rows: int = 4096,
        refused: Literal["raise", "skip"] = "raise",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        metrics = named(metrics)
        if width < 1 or max_rows < 0:
            raise ValueError(f"width starts at 1 and max_rows at 0, got {width} and {max_rows}")
        self.refused = refused
        self.width, self.max_rows = width, max_rows
        self.of_moments = {
            k: f
            for k, f in metrics.items()
            if getattr(getattr(f, "func", f), "from_moments", False)
        }
        self.of_rows = {k: f for k, f in metrics.items() if k not in self.of_moments}
        for name, function in self.of_rows.items():
            if needs(function) in ("reference", "positives"):
                raise ValueError(f"{name} compares two clouds row by row; use suite for it")
            if not max_rows:
                raise ValueError(
                    f"{name} has to see rows; leave it out or keep some, max_rows=4096"
                )
        self.needed = sorted({needs(f) for f in self.of_rows.values()} - {"rows"})
        empty = torch.zeros(max_rows if self.of_rows else 0, OF_ROW + width, dtype=torch.float64)
        empty[:, 0] = EMPTY
        self.add_state("packed", _pack(empty_moments(width)), dist_reduce_fx=_merged_states)
        self.add_state("kept", empty, dist_reduce_fx=_lowest)

    def update(
        self,
        x: Tensor,
        ids: Tensor | None = None,
        labels: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> None:
        """Add `x [N, D]`; metrics that see embeddings need their `ids [N]`."""
        check_shape(x, min_rows=0)
        n, width = x.shape
        if width != self.width:
            raise ValueError(f"rows of width {self.width} are expected, got {width}")
        if n == 0:
            return
        part = Moments(*(p.to(self.packed) for p in Cloud(x.detach(), min_rows=1).moments))
        if self.of_rows:
            column_N6 = self._columns(n, ids, {"labels": labels, "groups": groups})
            new_NC = torch.cat([column_N6, x.detach().cpu().double()], dim=1).to(self.kept)
            new_NC = new_NC[new_NC[:, 0] <= self.kept[:, 0].max()]
            if len(new_NC):
                self.kept = _lowest(torch.cat([self.kept, new_NC])[None], len(self.kept))
        self.packed = _pack(merged(_unpack(self.packed, self.width), part))

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Add a batch; the values of this batch alone, undefined ones skipped."""
        self.update(*args, **kwargs)
        alone = self.clone()
        alone.reset()
        alone.update(*args, **kwargs)
        alone.refused = "skip"
        values: dict[str, Tensor] = alone.compute()
        return values

    def compute(self) -> dict[str, Tensor]:
        """Values by name as in `suite`, `n_rows` (N) and, if any are kept, `n_rows_kept` (M)."""
        moments = _unpack(self.packed, self.width)
        values = {"n_rows": moments.n}
        if self.of_moments:
            cloud = Cloud.from_moments(moments)
            values |= suite(cloud, self.of_moments, refused=self.refused)
        if self.of_rows:
            rows = self.kept[self.kept[:, 0] < EMPTY]
            values["n_rows_kept"] = moments.n.new_tensor(float(len(rows)))
            high_M2, low_M2 = rows[:, 2:OF_ROW:2].long(), rows[:, 3:OF_ROW:2].long()
            label_M, group_M = ((high_M2 << 32) + low_M2).T
            kept = rows[:, OF_ROW:]
            more = {"labels": label_M, "groups": group_M}
            values |= suite(kept, self.of_rows, refused=self.refused, **more)
        return values

    def _columns(self, n: int, ids: Tensor | None, more: dict[str, Tensor | None]) -> Tensor:
        """Hashes, labels and groups in halves that fit a float64, `[N, 6]`."""
        if ids is None:
            raise ValueError(
                f"a sample of rows is kept for {', '.join(self.of_rows)}; pass ids=[N], a number "
                "for each row that no other row has: then any process keeps the same sample"
            )
        given = {"ids": ids}
        for name in self.needed:
            value = more[name]
            if value is None:
                of = ", ".join(k for k, f in self.of_rows.items() if needs(f) == name)
                raise ValueError(f"{of} needs {name}; pass {name}=[N] to update, or leave it out")
            given[name] = value
        for name, value in given.items():
            whole = not value.is_floating_point() or bool((value == value.round()).all())
            if value.shape != (n,) or not whole:
                raise ValueError(
                    f"{name} must be one whole number for each of the {n} rows, got shape "
                    f"{tuple(value.shape)} of {value.dtype}"
                )
        zero_N = torch.zeros(n, dtype=torch.int64)
        numbers = [hash_ids(ids.long().cpu())]
        numbers += [given[name].long().cpu() if name in given else zero_N for name in more]
        halves = [half for number in numbers for half in (number >> 32, number & 0xFFFFFFFF)]
        return torch.stack(halves, dim=1).double()


def _pack(moments: Moments) -> Tensor:
    """Pack moments into one vector `[V]`: a state that processes exchange as a whole."""
    return torch.cat([part.flatten() for part in moments])


def _unpack(packed_V: Tensor, width: int) -> Moments:
    one, row, square = torch.Size([]), torch.Size([width]), torch.Size([width, width])
    shapes = (one, row, square, row, row, row, one, row, row)
    parts = torch.split(packed_V, [shape.numel() for shape in shapes])
    return Moments(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))


def _merged_states(packed_PV: Tensor) -> Tensor:
    # V = D² + 6·D + 2
    width = int((packed_PV.shape[1] + 7) ** 0.5) - 3
    return _pack(merged(*(_unpack(packed_V, width) for packed_V in packed_PV)))


def _lowest(kept_PMC: Tensor, most: int | None = None) -> Tensor:
    """The embeddings of lowest hash, as many as one process keeps, sorted by hash."""
    rows_MC = kept_PMC.flatten(0, 1)
    rows_MC = rows_MC[rows_MC[:, 1].argsort(stable=True)]
    rows_MC = rows_MC[rows_MC[:, 0].argsort(stable=True)]
    again_M = (rows_MC[1:, :2] == rows_MC[:-1, :2]).all(dim=1)
    if bool(again_M.any()):  # duplicate ids, or empty slots
        rows_MC[1:][again_M, 0] = EMPTY
        rows_MC = rows_MC[rows_MC[:, 0].argsort(stable=True)]
    return rows_MC[: kept_PMC.shape[1] if most is None else most]
