"""SIGReg: makes random one-dimensional projections of embeddings standard normal.

N embeddings, D dimensions, M slices, T integration points.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from isotrain.arguments import checked
from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.rows import check_shape
from isotrain.objectives.base import Sliced

BLOCK_BYTES = 1 << 25  # size of a block of slices


def sigreg(x_ND: Tensor, slices_DM: Tensor, t_max: float = 3.0, n_points: int = 17) -> Tensor:
    """Mean Epps–Pulley distance of the projections `x·slices` to N(0, 1); 0 = standard normal.

    For the values z of one slice, `x [N, D]` times a column of `slices [D, M]`, it is
    ∫ |φ(t) − exp(−t²/2)|²·exp(−t²/2) dt over [−`t_max`, `t_max`],
    φ(t) = mean_n exp(i·t·z_n), by the trapezoid rule: as the integrand is even, on `n_points` =
    T points t_k = k·h of [0, t_max], h = t_max/(T − 1), with weights 2h, and h at both ends.
    Less than 4√(2π); N standard normal embeddings give about 1.05/N on average, and the published
    statistic is N times this. Values 2π/h apart look equal (34, by default). Invariant to the order
    of embeddings and of slices; over random slices, on average to rotation.

    Blocks of slices are computed again in the backward pass, so memory is bounded.

    Balestriero and LeCun 2025 (LeJEPA); points and window of its released code.

    >>> round(sigreg(torch.zeros(3, 2), torch.eye(2), t_max=8.0, n_points=65).item(), 6)
    0.408923
    """
    check_shape(x_ND, min_rows=1)
    value_NM = x_ND @ slices_DM
    size = max(1, BLOCK_BYTES // (len(x_ND) * n_points * x_ND.element_size()))
    blocks = torch.split(value_NM, size, dim=1)
    if len(blocks) > 1 and value_NM.requires_grad and torch.is_grad_enabled():
        parts = [
            checkpoint(
                _distances, b, t_max, n_points, use_reentrant=False, preserve_rng_state=False
            )
            for b in blocks
        ]
    else:
        parts = [_distances(block_NM, t_max, n_points) for block_NM in blocks]
    return torch.cat(parts).mean()


def _distances(value_NM: Tensor, t_max: float, n_points: int) -> Tensor:
    """The distance `[M]` of each slice."""
    t_T = torch.linspace(0.0, t_max, n_points, dtype=value_NM.dtype, device=value_NM.device)
    normal_T = (-0.5 * t_T.square()).exp()
    weight_T = torch.full_like(t_T, 2.0 * t_max / (n_points - 1))
    weight_T[[0, -1]] /= 2.0
    angle_NMT = value_NM[..., None] * t_T
    real_MT, imaginary_MT = angle_NMT.cos().mean(dim=0), angle_NMT.sin().mean(dim=0)
    error_MT = (real_MT - normal_T).square() + imaginary_MT.square()
    return error_MT @ (weight_T * normal_T)


class SIGReg(Sliced):
    """`sigreg` of the embeddings of view 0, averaged over the read points.

    Args: those of `Sliced`, and
        rows: scaled (embeddings of length √D, so that a slice can have variance 1; lengths get no
            gradient) | raw (unchanged).
        t_max: end of the integral, in units of one over the standard deviation.
        n_points: integration points on [0, t_max].
    """

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        rows: Literal["scaled", "raw"] = "scaled",
        n_slices: Annotated[int, Field(ge=1)] = 256,
        t_max: Annotated[float, Field(gt=0)] = 3.0,
        n_points: Annotated[int, Field(ge=3)] = 17,
        seed: int = 0,
    ) -> None:
        loss = partial(sigreg, t_max=t_max, n_points=n_points)
        super().__init__(weight, reads, loss, n_slices, seed)
        self.rows = rows

    def clouds_of(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> Sequence[Sequence[Tensor]]:
        """The embeddings of view 0 at each read point, of length √D if they are scaled."""
        clouds = super().clouds_of(views, labels)
        if self.rows == "raw":
            return clouds
        return [[unit_rows(x_ND) * x_ND.shape[1] ** 0.5] for (x_ND,) in clouds]
