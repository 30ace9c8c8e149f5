"""Supervised contrastive loss: pulls embeddings of the same class together.

N embeddings, D dimensions, B examples.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.rows import check_shape
from isotrain.objectives.projection import Projected, Projection


def supcon(x_ND: Tensor, labels_N: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Mean over anchors i of −(1/|P_i|) Σ_{p ∈ P_i} ln[e^{s_ip/τ} / Σ_{a ≠ i} e^{s_ia/τ}], in nats.

    s is the cosine; P_i are the other embeddings of the class of i, and a runs over all others.
    Anchors without a positive are left out: 0, with zero gradient, where all are. In [0, ∞);
    ln(N − 1) where all embeddings are equal. A zero vector has cosine 0 with all.

    Args:
        x_ND: embeddings `[N, D]` of any length.
        labels_N: class of each, `[N]`.
        temperature: τ > 0.

    Khosla et al. 2020 (the sum outside of the logarithm).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(supcon(x, torch.tensor([0, 0, 1, 1]), temperature=1.0).item(), 4)  # ln(e + 2) − 1
    0.5514
    """
    check_shape(x_ND, min_rows=1)
    if labels_N.shape != x_ND.shape[:1]:
        raise ValueError(
            f"labels are one for each embedding, [{len(x_ND)}], got {tuple(labels_N.shape)}"
        )
    unit_ND = unit_rows(x_ND)
    is_positive = positives_of(labels_N)
    is_anchor = is_positive.any(dim=1)
    if not bool(is_anchor.any()):
        return unit_ND.sum() * 0.0
    is_self = torch.eye(*is_positive.shape, dtype=torch.bool, device=is_positive.device)[is_anchor]
    is_positive = is_positive[is_anchor]
    logits = unit_ND[is_anchor] @ unit_ND.T / temperature
    log_sum = logits.masked_fill(is_self, -torch.inf).logsumexp(dim=1, keepdim=True)
    losses = ((log_sum - logits) * is_positive).sum(dim=1) / is_positive.sum(dim=1)
    return losses.mean()


def positives_of(labels_N: Tensor) -> Tensor:
    """Mask of the positives of each embedding in the batch, `[N, N]`.

    >>> positives_of(torch.tensor([0, 0, 1])).int().tolist()
    [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    same = labels_N[:, None] == labels_N[None, :]
    return same & ~torch.eye(*same.shape, dtype=torch.bool, device=same.device)


class SupCon(Projected):
    """`supcon` of the vectors `[B, P, D]` at one read point; labels are the classes.

    Logged: `anchors_skipped`, embeddings without a positive.

    Args: those of `Projected`, and
        n_views: 1, or 2: a second forward pass gives each embedding a positive, itself.
        temperature: τ.

    >>> objective = SupCon(weight=1.0, width=2)
    >>> loss = objective([[torch.eye(2)[:, None]]], torch.tensor([0, 1]))
    >>> loss.item(), objective.counters
    (0.0, {'anchors_skipped': tensor(2.)})
    """

    needs = "classes"

    @checked
    def __init__(
        self,
        weight: float,
        width: int,
        reads: Sequence[str] = ("pooled",),
        n_views: Literal[1, 2] = 1,
        temperature: Annotated[float, Field(gt=0)] = 0.1,
        projection: Projection = "none",
    ) -> None:
        super().__init__(weight, width, reads, projection)
        self.n_views, self.temperature = n_views, temperature

    def forward(self, views: Sequence[Sequence[Tensor]], labels: Tensor) -> Tensor:
        """The unweighted loss."""
        x_ND = torch.cat([self.project(view[0]) for view in views])
        labels_N = labels.repeat(len(views))
        self.counters = {"anchors_skipped": (~positives_of(labels_N).any(dim=1)).sum().float()}
        return supcon(x_ND, labels_N, temperature=self.temperature)
