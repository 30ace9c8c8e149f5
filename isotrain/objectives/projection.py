"""Base class of contrastive losses: one read point, a projection. N embeddings, D dimensions."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from isotrain.config.read_points import read_point
from isotrain.geometry.rows import wide
from isotrain.objectives.base import Objective

Projection = Literal["none", "mlp"]


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

    A subclass adds `forward`.

    Args: those of `Objective`, with one read point, and
        projection: none | mlp, a linear layer and tanh before the comparison.

    Raises:
        ValueError: other than one read point.
    """

    def __init__(
        self, weight: float, width: int, reads: Sequence[str], projection: Projection
    ) -> None:
        super().__init__(weight, check_one_read_point(reads))
        self.projection = build_projection(projection, width)

    def project(self, vectors: Tensor) -> Tensor:
        """The projected embeddings `[N, D]` of `[B, P, D]` or `[N, D]`, in float32 at least."""
        x_ND = vectors.flatten(0, -2)
        weights = next(self.projection.parameters(), x_ND)
        projected_ND: Tensor = self.projection(x_ND.to(weights.dtype))
        return wide(projected_ND)
