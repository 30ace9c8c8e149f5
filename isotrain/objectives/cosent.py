"""CoSENT: ranks cosines of pairs by label. B pairs, D dimensions, P vectors."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import paired_cosines, ranking
from isotrain.objectives.base import Objective, check_pairs
from isotrain.objectives.projection import check_one_read_point


def cosent(first_BD: Tensor, second_BD: Tensor, labels_B: Tensor, scale: float = 20.0) -> Tensor:
    """ln(1 + Σ exp(scale·(s_i − s_j))) over pairs with y_i < y_j, in [0, ∞) nats.

    s_i is the cosine of pair i of `first` and `second [B, D]`, and y_i in `labels [B]` its label,
    graded or a class: higher = more similar. ln(1 + number of ordered pairs) where all cosines are
    equal; 0, with zero gradient, where all labels are. Invariant to one rotation of both and to
    lengths. A zero vector has cosine 0.

    CoSENT (Huang et al. 2024).

    >>> import torch
    >>> x, y = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # cosines 1 and 0
    >>> round(cosent(x, y, torch.tensor([0.0, 4.2]), scale=1.0).item(), 4)  # ln(1 + e)
    1.3133
    """
    check_pairs(first_BD, second_BD)
    return ranking(paired_cosines(first_BD, second_BD), labels_B, scale)


class CoSENT(Objective):
    """`cosent` of the two vectors `[B, 2, D]` of each example at one read point.

    Logged: `undefined`, 1 for a batch whose labels are all equal.

    Args: those of `Objective`, with one read point, and
        scale: factor of the cosines, one over a temperature.
        more_similar: higher | lower, the label of the more similar pair: higher for scores of
            STS-B and for WiC (1 = same sense), lower for RTE (0 = entailment).

    Raises:
        ValueError: several read points.
    """

    needs = "scored_pairs"

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        scale: Annotated[float, Field(gt=0)] = 20.0,
        more_similar: Literal["higher", "lower"] = "higher",
    ) -> None:
        super().__init__(weight, check_one_read_point(reads))
        self.scale, self.sign = scale, 1 if more_similar == "higher" else -1

    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        first_BD, second_BD = views[0][0].unbind(dim=1)
        self.counters = {"undefined": (labels == labels[0]).all().float()}
        return self.loss(first_BD, second_BD, self.sign * labels)

    def loss(self, first_BD: Tensor, second_BD: Tensor, labels_B: Tensor) -> Tensor:
        """The loss of pairs whose higher label is more similar."""
        return cosent(first_BD, second_BD, labels_B, self.scale)
