"""I-STAR: raises or lowers IsoScore*, with covariance shrinkage towards a stable estimate.

N embeddings, D dimensions, C clouds, S the smaller of N and D.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.config.read_points import read_point
from isotrain.geometry.rows import check_shape
from isotrain.geometry.spectra import RunningCovariance, evenness
from isotrain.objectives.base import LossOfClouds
from isotrain.transforms.queue import RowQueue


def istar(x_ND: Tensor, reference_DD: Tensor | None = None, shrinkage: float = 0.0) -> Tensor:
    """1 − IsoScore* of `x [N, D]`, in [0, 1]; 0 = isotropic. Keeps the dtype.

    IsoScore* = ((tr M)²/‖M‖²_F − 1)/(D − 1), M = (1 − ζ)·C + ζ·C₀, with C the centred covariance
    (divided by N − 1), C₀ = `reference_DD` (without one ζ acts as 0) and ζ = `shrinkage` in [0, 1].
    Two traces and no eigenproblem, so the gradient is finite for equal eigenvalues; it is zero
    at ζ = 1. Embeddings without scatter, and no C₀, give 1; D = 1 gives 0. Invariant to order and
    translation of the embeddings, and to a common rotation or scale of embeddings and C₀.

    Raises:
        ValueError: fewer than three embeddings, which always lie on a line.

    Rudman and Eickhoff 2024; by traces as in `isotrain.metrics.isoscore`.

    >>> round(istar(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])).item(), 6)
    0.529412
    """
    check_shape(x_ND, min_rows=3)
    n, d = x_ND.shape
    centred_ND = x_ND - x_ND.mean(dim=0)
    size = centred_ND.detach().abs().amax()
    if reference_DD is not None:
        size = torch.maximum(size, reference_DD.abs().amax().sqrt())
    centred_ND = centred_ND / torch.where(size > 0, size, 1.0)  # avoid overflow of squares
    gram_SS = (centred_ND @ centred_ND.T if n < d else centred_ND.T @ centred_ND) / (n - 1)
    trace, frobenius = gram_SS.trace(), gram_SS.square().sum()
    if reference_DD is not None:
        target_DD = reference_DD / torch.where(size > 0, size, 1.0).square()
        cross = ((centred_ND @ target_DD) * centred_ND).sum() / (n - 1)  # <C, C₀>
        trace = (1.0 - shrinkage) * trace + shrinkage * target_DD.trace()
        frobenius = (
            (1.0 - shrinkage) ** 2 * frobenius
            + 2.0 * shrinkage * (1.0 - shrinkage) * cross
            + shrinkage**2 * target_DD.square().sum()
        )
    return 1.0 - evenness(trace, frobenius, d)


class IStar(LossOfClouds):
    """`istar` of the embeddings of view 0 at each read point, or of their union.

    A point cloud with fewer than three embeddings or without scatter has loss 0 and increments the
    counter `undefined`. Each cloud has its own C₀ (C·D²·4 bytes of buffers): the covariance of
    recent embeddings (`reference="queue"`, ours; none before the first step; `reference_rows`·D·4
    bytes more), or that of training examples in evaluation mode at the start of each epoch
    (`"epoch"`, as published). A negative weight lowers isotropy.

    Args: those of `Objective`, and
        n_blocks: blocks of the encoder, to expand `all/...`.
        shrinkage: ζ, the weight of C₀ relative to the batch covariance; 0 = no C₀.
        clouds: each (mean over read points) | union (one cloud of all, as published).
        reference: queue | epoch.
        reference_rows: maximum number of embeddings behind C₀ (`epoch`: full batches until there
            are as many). IsoScore of M embeddings is itself about M/(M + D) of its true value.
    """

    reference_CDD: Tensor
    has_reference_C: Tensor
    reference_epoch: Tensor

    @checked
    def __init__(
        self,
        weight: float,
        width: int,
        n_blocks: int,
        reads: Sequence[str] = ("all/tokens",),
        shrinkage: Annotated[float, Field(ge=0, le=1)] = 0.2,
        clouds: Literal["each", "union"] = "union",
        reference: Literal["queue", "epoch"] = "queue",
        reference_rows: Annotated[int, Field(ge=16)] = 4096,
    ) -> None:
        super().__init__(weight, reads, istar, min_rows=3, scatter=True)
        self.shrinkage, self.clouds = shrinkage, clouds
        self.reference, self.reference_rows = reference, reference_rows
        n_read = sum(n_blocks if read_point(text).name == "all" else 1 for text in reads)
        n_clouds = 1 if clouds == "union" else n_read
        self.register_buffer("reference_CDD", torch.zeros(n_clouds, width, width))
        self.register_buffer("has_reference_C", torch.zeros(n_clouds, dtype=torch.bool))
        self.register_buffer("reference_epoch", torch.tensor(-1))  # of the latest pass
        n_queues = n_clouds if reference == "queue" and shrinkage > 0 else 0
        self.queues = nn.ModuleList(RowQueue(reference_rows, width) for _ in range(n_queues))

    @property
    def remembers(self) -> bool:
        """Whether it has queues, filled by `observe`."""
        return len(self.queues) > 0

    def clouds_of(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> Sequence[Sequence[Tensor]]:
        """The embeddings of view 0 at each read point, or their union."""
        return [[x_ND] for x_ND in self._clouds(views[0])]

    def more(self, clouds: Sequence[Sequence[Tensor]]) -> list[tuple[Tensor | None, float]]:
        """C₀ of each cloud, None before there is one, and its weight."""
        like = clouds[0][0]
        references = zip(self.reference_CDD, self.has_reference_C.tolist(), strict=True)
        return [(c_DD.to(like) if exists else None, self.shrinkage) for c_DD, exists in references]

    @torch.no_grad()
    def observe(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> None:
        """Add the embeddings of a step to the queues; C₀ is the covariance of their content."""
        if not self.remembers:
            return
        for number, x_ND in enumerate(self._clouds(views[0])):
            queue = cast(RowQueue, self.queues[number])
            queue.push(x_ND)
            if len(rows_MD := queue.rows()) > 1:
                self._set_reference(number, torch.cov(rows_MD.T))

    def asks_for_pass(self, epoch: int) -> bool:
        """Whether C₀ is of another epoch."""
        return (
            self.reference == "epoch" and self.shrinkage > 0 and int(self.reference_epoch) != epoch
        )

    @torch.no_grad()
    def prepare(self, epoch: int, reads: Iterable[Sequence[Tensor]]) -> None:
        """Compute C₀ from the first `reference_rows` training examples."""
        n_clouds, width = self.reference_CDD.shape[:2]
        estimates = [RunningCovariance(width, self.reference_CDD.device) for _ in range(n_clouds)]
        for read in reads:
            for estimate, x_ND in zip(estimates, self._clouds(read), strict=True):
                estimate.add(x_ND)
            if all(estimate.n >= self.reference_rows for estimate in estimates):
                break
        for number, estimate in enumerate(estimates):
            if estimate.n > 1:
                self._set_reference(number, estimate.covariance())
        self.reference_epoch.fill_(epoch)

    def _set_reference(self, number: int, covariance_DD: Tensor) -> None:
        self.reference_CDD[number] = covariance_DD
        self.has_reference_C[number] = True

    def _clouds(self, read: Sequence[Tensor]) -> list[Tensor]:
        clouds = [x.flatten(0, -2) for x in read]
        return [torch.cat(clouds)] if self.clouds == "union" else clouds
