"""What contrastive objectives compare: rows of one place, projected, and a memory of past ones.

N rows, D dimensions, M rows held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from torch import Tensor, nn

from isotrain.arguments import Bounds
from isotrain.config.read_points import place
from isotrain.geometry.rows import wide
from isotrain.transforms.queue import RowQueue

Projection = Literal["none", "mlp"]
MemoryRows = Annotated[int, Bounds(0)]


def one_place(reads: Sequence[str]) -> Sequence[str]:
    """`reads`, which must name one cloud: a row is compared with rows of its own place.

    Raises:
        ValueError: several places, none, or `all/...`, which is one for each block.

    >>> one_place(["layer_3/cls"])
    ['layer_3/cls']
    """
    if len(reads) != 1 or place(reads[0]).name == "all":
        raise ValueError(
            f"reads must name one place, as this loss compares rows of one place, got "
            f"{list(reads)}; give pooled, or one block such as layer_3/cls"
        )
    return reads


def build_projection(projection: Projection, width: int) -> nn.Module:
    """A map `[N, D] -> [N, D]`: the identity, or a linear layer and tanh (Gao et al. 2021).

    Weights start as BERT's do, normal with standard deviation 0.02, and biases at 0. Nothing is
    refused: names are checked where a `Projection` is an argument.

    >>> build_projection("none", 4)
    Identity()
    """
    if projection == "none":
        return nn.Identity()
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


class Projected(nn.Module):
    """A contrastive objective without its loss; rows `[N, D]` in, rows `[N, D]` to compare out.

    Args:
        weight: factor of the loss.
        width: D.
        reads: one place.
        projection: none | mlp, in front of the comparison. It trains with the encoder and is used
            by nothing else.
        memory_rows: rows of past steps that are kept, in buffers; 0 = none.
        n_labels: columns that the memory has beside the D of a row.

    Raises:
        ValueError: other than one place, or `memory_rows=1`.

    >>> Projected(1.0, 4, ["pooled"], "mlp", 8).projection
    Sequential(
      (0): Linear(in_features=4, out_features=4, bias=True)
      (1): Tanh()
    )
    """

    def __init__(
        self,
        weight: float,
        width: int,
        reads: Sequence[str],
        projection: Projection,
        memory_rows: int,
        n_labels: int = 0,
    ) -> None:
        super().__init__()
        if memory_rows == 1:
            raise ValueError("memory_rows must be 0 (no memory) or at least 2, got 1")
        self.weight, self.reads = weight, one_place(reads)
        self.projection = build_projection(projection, width)
        self.n_columns = width + n_labels
        self.memory = RowQueue(memory_rows, self.n_columns, span=1) if memory_rows else None
        self.counters: dict[str, Tensor] = {}

    @property
    def remembers(self) -> bool:
        """Whether it has a memory, which `observe` fills."""
        return self.memory is not None

    def project(self, vectors: Tensor) -> Tensor:
        """The projected rows `[N, D]` of `[B, P, D]` or `[N, D]`, in float32 at least."""
        rows_ND = vectors.flatten(0, -2)
        weights = next(self.projection.parameters(), rows_ND)
        projected_ND: Tensor = self.projection(rows_ND.to(weights.dtype))
        return wide(projected_ND)

    def past(self, like_ND: Tensor) -> Tensor:
        """What the memory holds, `[≤ M, D + labels]`, in the type of `like`."""
        if self.memory is None:
            return like_ND.new_zeros(0, self.n_columns)
        return self.memory.rows().to(like_ND)
