"""SimCSE: identifies each embedding's positive within the batch, by cosine.

N anchors, D dimensions, H hard negatives of an anchor, K = N·H, M embeddings of past steps, P
vectors of an example.
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
from isotrain.objectives.projection import MemoryRows, Projected, Projection


def simcse(
    anchors_ND: Tensor,
    positives_ND: Tensor,
    negatives_NHD: Tensor | None = None,
    memory_MD: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_negative_weight: float = 0.0,
    symmetric: bool = False,
    decoupled: bool = False,
) -> Tensor:
    """Mean of ln Σ_c e^{s(a_i, c)/τ + α·[c ∈ H_i]} − s(a_i, p_i)/τ over anchors i, in nats.

    a_i and p_i are anchor i and its positive, s is the cosine; c runs over all positives,
    all hard negatives and the memory; H_i are the hard negatives of i. `symmetric` averages this
    with the loss of the positives as anchors, whose candidates are the anchors and the memory. In
    [0, ∞); ln of the number of candidates where all embeddings are equal and α = 0; 0 for one
    anchor without negatives. A zero vector has cosine 0 with all.

    Args:
        anchors_ND: embeddings `[N, D]` of any length.
        positives_ND: the positive of each, `[N, D]`.
        negatives_NHD: hard negatives of each, `[N, H, D]`.
        memory_MD: further negatives of all, `[M, D]`.
        temperature: τ > 0.
        hard_negative_weight: α, added after the division by τ.
        symmetric: both directions.
        decoupled: without p_i in the sum (`dcl`).

    Gao et al. 2021; the symmetric form and the memory are usual additions.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(simcse(x, x, temperature=1.0).item(), 4)  # ln(e + 1) − 1
    0.3133
    """
    check_pairs(anchors_ND, positives_ND)
    anchors_ND, positives_ND = unit_rows(anchors_ND), unit_rows(positives_ND)
    n, empty_KD = len(anchors_ND), anchors_ND[:0]
    negatives_KD = empty_KD if negatives_NHD is None else unit_rows(negatives_NHD.flatten(0, 1))
    memory_MD = empty_KD if memory_MD is None else unit_rows(memory_MD)
    candidates = torch.cat([positives_ND, negatives_KD, memory_MD])
    logits = anchors_ND @ candidates.T / temperature
    if hard_negative_weight and len(negatives_KD):
        bonus_NN = hard_negative_weight * torch.eye(n, dtype=logits.dtype, device=logits.device)
        bonus_NK = bonus_NN.repeat_interleave(len(negatives_KD) // n, dim=1)
        logits = logits + pad(bonus_NK, (n, len(memory_MD)))
    loss = contrast(logits, decoupled)
    if symmetric:
        reverse_logits = positives_ND @ torch.cat([anchors_ND, memory_MD]).T / temperature
        loss = (loss + contrast(reverse_logits, decoupled)) / 2
    return loss


class SimCSE(Projected):
    """`simcse` of the vectors `[B, P, D]` or tokens `[N, D]` at one read point.

    The memory holds the candidates of past steps (positives and hard negatives), projected with
    the weights of those steps, of unit length and without gradient (after Wang et al. 2020,
    cross-batch memory). Keep it smaller than the training set, or an example meets itself as a
    negative. A step with more candidates is subsampled.

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
        memory_rows: MemoryRows = 0,
    ) -> None:
        super().__init__(weight, width, reads, projection, memory_rows)
        self.positives = Positives(positives, positive_labels)
        if self.positives.of_pairs:
            self.n_views, self.needs = 1, "pairs"
        self.temperature, self.symmetric = temperature, symmetric
        self.hard_negative_weight = hard_negative_weight

    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        anchors_ND, positives_ND, negatives_NHD = self._roles(views, labels)
        memory_MD = self.past(anchors_ND)
        n = len(anchors_ND)
        n_all = n + len(memory_MD)  # candidates of either direction
        n_skipped = n * ((n_all + negatives_NHD.shape[1] == 1) + (self.symmetric and n_all == 1))
        self.counters = {"anchors_skipped": torch.tensor(float(n_skipped))}
        if self.positives.labels is not None:
            self.counters["undefined"] = torch.tensor(float(n == 0))
        if n == 0:
            return anchors_ND.sum()
        return simcse(
            anchors_ND,
            positives_ND,
            negatives_NHD,
            memory_MD,
            temperature=self.temperature,
            hard_negative_weight=self.hard_negative_weight,
            symmetric=self.symmetric,
            decoupled=self.decoupled,
        )

    @torch.no_grad()
    def observe(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> None:
        """Remember the candidates of a step."""
        if self.memory is not None:
            _, positives_ND, negatives_NHD = self._roles(views, labels)
            self.memory.push(unit_rows(torch.cat([positives_ND, negatives_NHD.flatten(0, 1)])))

    def n_remembered(self, n_vectors: int) -> int:
        """Candidates of an example."""
        return n_vectors - 1 if self.positives.of_pairs else n_vectors

    def _roles(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projected anchors, positives and hard negatives."""
        projected_ND = self.project(views[0][0])
        if not self.positives.of_pairs:
            return projected_ND, self.project(views[1][0]), projected_ND[:, None][:, :0]
        vectors_NPD = self.positives.select(projected_ND.reshape(views[0][0].shape), labels)
        return vectors_NPD[:, 0], vectors_NPD[:, 1], vectors_NPD[:, 2:]
