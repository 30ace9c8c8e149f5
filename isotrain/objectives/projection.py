"""Base class of contrastive losses: one read point, a projection, a memory of past steps.

N embeddings, D dimensions, M embeddings held.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from isotrain.config.read_points import read_point
from isotrain.geometry.rows import wide
from isotrain.objectives.base import Objective
from isotrain.transforms.queue import RowQueue

Projection = Literal["none", "mlp"]
MemoryRows = Annotated[int, Field(ge=0)]


def check_one_read_point(reads: Sequence[str]) -> Sequence[str]:
    """`reads`; a ValueError unless it names one read point (`all/...` names one a block)."""
    if len(reads) != 1 or read_point(reads[0]).name == "all":
        raise ValueError(
            "reads must name one read point, as this loss compares embeddings of one, got "
            f"{list(reads)}; give pooled, or one block such as layer_3/cls"
        )
    return reads


def build_projection(projection: Projection, width: int) -> nn.Module:
    """A map `[N, D] -> [N, D]`: the identity, or a linear layer and tanh (Gao et al. 2021).

    Weights start as BERT's do, normal with standard deviation 0.02, and biases at 0.
    """
    if projection == "none":
        return nn.Identity()
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


class Projected(Objective):
    """A contrastive loss of the projected embeddings `[N, D]` of one read point.

    A subclass adds `forward` and, for the memory, `observe`.

    Args: those of `Objective`, with one read point, and
        projection: none | mlp, a linear layer and tanh before the comparison.
        memory_rows: embeddings of past steps in the memory: at least 2, or 0 = none.
        has_labels: whether the memory keeps the label of each embedding, too.

    Raises:
        ValueError: other than one read point, or `memory_rows=1`.
    """

    def __init__(
        self,
        weight: float,
        width: int,
        reads: Sequence[str],
        projection: Projection,
        memory_rows: int,
        has_labels: bool = False,
    ) -> None:
        super().__init__(weight, check_one_read_point(reads))
        self.projection = build_projection(projection, width)
        self.memory = RowQueue(memory_rows, width, 1, has_labels) if memory_rows else None

    @property
    def remembers(self) -> bool:
        """Whether it has a memory."""
        return self.memory is not None

    def project(self, vectors: Tensor) -> Tensor:
        """The projected embeddings `[N, D]` of `[B, P, D]` or `[N, D]`, in float32 at least."""
        x_ND = vectors.flatten(0, -2)
        weights = next(self.projection.parameters(), x_ND)
        projected_ND: Tensor = self.projection(x_ND.to(weights.dtype))
        return wide(projected_ND)

    def past(self, like_ND: Tensor) -> Tensor:
        """The embeddings of the memory, `[≤ M, D]`, in the type of `like`."""
        return like_ND[:0].detach() if self.memory is None else self.memory.rows().to(like_ND)
