"""SimCSE: identifies each embedding's positive within the batch, by cosine.

N anchors, D dimensions, H hard negatives of an anchor, K = N·H, P vectors of an example.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from isotrain.arguments import checked
from isotrain.geometry.cosine import contrast, unit_rows
from isotrain.objectives.base import Positives, check_pairs
from isotrain.objectives.projection import Projected, Projection


def simcse(
    anchors_ND: Tensor,
    positives_ND: Tensor,
    negatives_NHD: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_negative_weight: float = 0.0,
    symmetric: bool = False,
    decoupled: bool = False,
) -> Tensor:
    """Mean of ln Σ_c e^{s(a_i, c)/τ + α·[c ∈ H_i]} − s(a_i, p_i)/τ over anchors i, in nats.

    a_i and p_i are anchor i and its positive, s is the cosine; c runs over all positives and
    all hard negatives; H_i are the hard negatives of i. `symmetric` averages this with the loss of
    the positives as anchors, whose candidates are the anchors. In [0, ∞); ln of the number of
    candidates where all embeddings are equal and α = 0; 0 for one anchor without negatives. A zero
    vector has cosine 0 with all.

    Args:
        anchors_ND: embeddings `[N, D]` of any length.
        positives_ND: the positive of each, `[N, D]`.
        negatives_NHD: hard negatives of each, `[N, H, D]`.
        temperature: τ > 0.
        hard_negative_weight: α, added after the division by τ.
        symmetric: both directions.
        decoupled: without p_i in the sum (`dcl`).

    Gao et al. 2021; the symmetric form is a usual addition.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(simcse(x, x, temperature=1.0).item(), 4)  # ln(e + 1) − 1
    0.3133
    """
    check_pairs(anchors_ND, positives_ND)
    anchors_ND, positives_ND = unit_rows(anchors_ND), unit_rows(positives_ND)
    n, empty_KD = len(anchors_ND), anchors_ND[:0]
    negatives_KD = empty_KD if negatives_NHD is None else unit_rows(negatives_NHD.flatten(0, 1))
    logits = anchors_ND @ torch.cat([positives_ND, negatives_KD]).T / temperature
    if hard_negative_weight and len(negatives_KD):
        bonus_NN = hard_negative_weight * torch.eye(n, dtype=logits.dtype, device=logits.device)
        bonus_NK = bonus_NN.repeat_interleave(len(negatives_KD) // n, dim=1)
        logits = logits + pad(bonus_NK, (n, 0))
    loss = contrast(logits, decoupled)
    if symmetric:
        loss = (loss + contrast(positives_ND @ anchors_ND.T / temperature, decoupled)) / 2
    return loss


class SimCSE(Projected):
    """`simcse` of the vectors `[B, P, D]` or tokens `[N, D]` at one read point.

    Logged: `anchors_skipped`, anchors (of either direction) that had no negative, and with
    `positive_labels` `undefined`, 1 for a batch without a pair.

    Args: those of `Projected`, and
        positives: dropout = an embedding, and itself in a second forward pass; pair = the first two
            vectors of an example are anchor and positive, further ones its hard negatives.
        positive_labels: as in `LossOfPairs`; the other examples are left out, as negatives too.
        temperature: τ.
        symmetric: whether positives look for their anchors too.
        hard_negative_weight: α; for positives=pair, where examples have hard negatives.

    Raises:
        ValueError: several read points.

    >>> objective = SimCSE(weight=1.0, width=2)
    >>> view = torch.eye(2)[:, None]
    >>> round(objective([[view], [view]], torch.zeros(2)).item(), 6)
    0.0
    """

    n_views, decoupled = 2, False
    positives: Positives

    @checked
    def __init__(
        self,
        weight: float,
        width: int,
        reads: Sequence[str] = ("pooled",),
        positives: Literal["dropout", "pair"] = "dropout",
        positive_labels: tuple[float, float] | None = None,
        temperature: Annotated[float, Field(gt=0)] = 0.05,
        symmetric: bool = False,
        hard_negative_weight: float = 0.0,
        projection: Projection = "none",
    ) -> None:
        super().__init__(weight, width, reads, projection)
        self.positives = Positives(positives, positive_labels)
        if self.positives.of_pairs:
            self.n_views, self.needs = 1, "pairs"
        self.temperature, self.symmetric = temperature, symmetric
        self.hard_negative_weight = hard_negative_weight

    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        anchors_ND, positives_ND, negatives_NHD = self._roles(views, labels)
        n = len(anchors_ND)
        n_skipped = n * ((n + negatives_NHD.shape[1] == 1) + (self.symmetric and n == 1))
        self.counters = {"anchors_skipped": torch.tensor(float(n_skipped))}
        if self.positives.labels is not None:
            self.counters["undefined"] = torch.tensor(float(n == 0))
        if n == 0:
            return anchors_ND.sum()
        return simcse(
            anchors_ND,
            positives_ND,
            negatives_NHD,
            temperature=self.temperature,
            hard_negative_weight=self.hard_negative_weight,
            symmetric=self.symmetric,
            decoupled=self.decoupled,
        )

    def _roles(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projected anchors, positives and hard negatives."""
        projected_ND = self.project(views[0][0])
        if not self.positives.of_pairs:
            return projected_ND, self.project(views[1][0]), projected_ND[:, None][:, :0]
        vectors_NPD = self.positives.select(projected_ND.reshape(views[0][0].shape), labels)
        return vectors_NPD[:, 0], vectors_NPD[:, 1], vectors_NPD[:, 2:]
