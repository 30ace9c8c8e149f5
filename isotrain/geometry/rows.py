"""Embeddings of a padded batch (A = Q·B sequences, T tokens), and checks of a cloud `[N, D]`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

POSITIONS = 1 << 20  # ids are index · POSITIONS + position: a million positions per example


def row_ids(index_B: Tensor, n_sequences: int, n_positions: int) -> Tensor:
    """Ids `[Q·B, T]` that name (example, sequence, position) uniquely, whatever the padding.

    The low 20 bits are q · 2^16 + t for position t of sequence q.
    """
    if n_positions > 1 << 16 or n_sequences > 16:
        raise ValueError(
            f"row ids hold at most 65536 positions and 16 sequences, got {n_positions} and "
            f"{n_sequences}; lower max_length"
        )
    sequence_Q = torch.arange(n_sequences, device=index_B.device) << 16
    position_T = torch.arange(n_positions, device=index_B.device)
    ids_QBT = (
        index_B.long()[None, :, None] * POSITIONS
        + sequence_Q[:, None, None]
        + position_T[None, None, :]
    )
    return ids_QBT.reshape(n_sequences * len(index_B), n_positions)


def index_of(ids: Tensor) -> Tensor:
    """The index in the data set of the example that each id names."""
    return ids // POSITIONS


def locate_ids(ids_N: Tensor, index_B: Tensor) -> tuple[Tensor, Tensor]:
    """Where in a batch the embeddings of some ids are: sequence `[N]` of Q·B, and position `[N]`.

    >>> ids = row_ids(torch.tensor([8, 3]), 2, 4)
    >>> locate_ids(ids[3, 1:3], torch.tensor([8, 3]))
    (tensor([3, 3]), tensor([1, 2]))
    """
    order_B = index_B.argsort()
    example_N = order_B[torch.searchsorted(index_B[order_B], index_of(ids_N))]
    sequence_N = (ids_N % POSITIONS) >> 16
    return sequence_N * len(index_B) + example_N, ids_N % (1 << 16)


def sentence_of(ids: Tensor) -> Tensor:
    """The number of the sequence that each id lies in, equal for all its tokens."""
    return ids >> 16


def hash_ids(ids: Tensor) -> Tensor:
    """Pseudo-random non-negative int64 of each id, the same on every machine and device.

    The finaliser of splitmix64 (Steele, Lea, Flood 2014); products wrap around.
    """
    x = ids + (-7046029254386353131)  # 0x9E3779B97F4A7C15 as a signed number
    x = (x ^ _shift(x, 30)) * (-4658895280553007687)  # 0xBF58476D1CE4E5B9
    x = (x ^ _shift(x, 27)) * (-7723592293110705685)  # 0x94D049BB133111EB
    return (x ^ _shift(x, 31)) & 0x7FFFFFFFFFFFFFFF


def _shift(x: Tensor, n: int) -> Tensor:
    """Logical right shift of a signed number."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def take_rows(hidden_ATD: Tensor, mask_AT: Tensor) -> Tensor:
    """The embeddings `[N, D]` where `mask` is true; by index, whose gradient is faster."""
    return hidden_ATD.flatten(0, 1).index_select(0, mask_AT.flatten().nonzero().flatten())


def put_rows(hidden_ATD: Tensor, mask_AT: Tensor, rows_ND: Tensor) -> Tensor:
    """A copy of `hidden` with `rows` where `mask` is true."""
    index_N = mask_AT.flatten().nonzero().flatten()
    flat_RD = hidden_ATD.flatten(0, 1).index_copy(0, index_N, rows_ND.to(hidden_ATD.dtype))
    return flat_RD.reshape(hidden_ATD.shape)


def wide(x: Tensor) -> Tensor:
    """`x` in float32 at least: half precision is promoted, float64 stays."""
    return x if x.dtype == torch.float64 else x.float()


def finite_rows(x_ND: Tensor) -> Tensor:
    """The embeddings without a NaN or infinity."""
    finite_N = torch.isfinite(x_ND.detach().sum(dim=1))  # no sum is finite with a NaN in it
    return x_ND if bool(finite_N.all()) else x_ND[torch.isfinite(x_ND).all(dim=1)]


def rounding_of(*clouds: Tensor) -> Tensor:
    """How large a difference of such numbers may be and still be rounding."""
    largest = torch.stack([x.detach().abs().amax() for x in clouds if x.numel()]).amax()
    return 64.0 * torch.finfo(largest.dtype).eps * largest


def has_scatter(x_ND: Tensor) -> bool:
    """Whether the embeddings differ by more than rounding.

    Measured by the extremes of each dimension: a mean is itself rounded.
    """
    return have_scatter([x_ND])[0]


def have_scatter(clouds: Sequence[Tensor]) -> list[bool]:
    """`has_scatter` of each cloud, with one wait for all of them."""
    varies = [False] * len(clouds)
    for n_first in (8, None):  # the first 8 nearly always decide
        if pending := [g for g, x in enumerate(clouds) if len(x) > 1 and not varies[g]]:
            are_spread = torch.stack([_spreads(clouds[g][:n_first]) for g in pending]).tolist()
            for g, is_spread in zip(pending, are_spread, strict=True):
                varies[g] = is_spread
    return varies


def _spreads(x_ND: Tensor) -> Tensor:
    low_D, high_D = torch.aminmax(x_ND, dim=0)
    largest = torch.maximum(high_D.abs().max(), low_D.abs().max())
    return (high_D - low_D).max() > 8.0 * torch.finfo(x_ND.dtype).eps * largest


def check_shape(x: Any, min_rows: int = 2) -> None:
    """Raise a ValueError for a tensor (or cloud) that is not `[N, D]` with enough embeddings."""
    if len(x.shape) != 2:
        raise ValueError(f"a cloud has shape [N, D], got {tuple(x.shape)}; drop pads and flatten")
    if x.shape[0] < min_rows:
        raise ValueError(
            f"this measure needs at least {min_rows} rows, got {x.shape[0]}; measure more text"
        )
