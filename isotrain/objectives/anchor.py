"""Anchor: keeps embeddings near those of the frozen start. N embeddings, D dimensions."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import paired_cosines
from isotrain.objectives.base import LossOfClouds, check_pairs


def anchor(
    x_ND: Tensor,
    start_ND: Tensor,
    distance: Literal["cosine", "squared"] = "cosine",
    centred: bool = False,
) -> Tensor:
    """Mean distance of embeddings to those of the start, both `[N, D]`; 0 = equal.

    With x the embeddings and s those of the start:

    - cosine: mean_n 1 − cos(x_n, s_n), in [0, 2]. Invariant to lengths.
    - squared: Σ_n ‖x_n − s_n‖² / Σ_n ‖s_n‖², at least 0. It holds lengths in place too, and is
      invariant to one scale of both.

    Both are invariant to one rotation of both and to one order for both. `centred` subtracts from
    x and s the mean of each first: the loss is then blind to a translation of all embeddings, and
    the common direction of a narrow cone is free to go. A zero vector has cosine 0.

    Raises:
        ValueError: no embedding, or fewer than two if centred.

    Ours.

    >>> import torch
    >>> x = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> anchor(x, torch.eye(2)).item(), anchor(x, torch.eye(2), "squared").item()
    (0.0, 0.5)
    >>> anchor(x + 5.0, x, "squared", centred=True).item()
    0.0
    """
    check_pairs(x_ND, start_ND, min_rows=2 if centred else 1)
    if centred:
        x_ND, start_ND = (z_ND - z_ND.mean(dim=0) for z_ND in (x_ND, start_ND))
    if distance == "squared":
        return (x_ND - start_ND).square().sum() / start_ND.square().sum()
    return 1.0 - paired_cosines(x_ND, start_ND).mean()


class Anchor(LossOfClouds):
    """`anchor` of the embeddings of view 0 to those of the start, averaged over the read points.

    The start is a copy of the encoder before its first step, with its pooling and without isotropy
    layers, in evaluation mode; a run makes it again when it resumes. The trained encoder has its
    dropout, so that the loss is not 0 at step 0. A read point with too few embeddings, or equal
    ones if centred, counts as 0, and in the counter `undefined`.

    The cosine is the default: it is what sentence embeddings are scored by, and it leaves lengths
    to the other losses. Where a linear head reads the embeddings, `squared` holds their lengths.

    Args: those of `Objective`, and
        distance: cosine | squared.
        centred: compare embeddings without their mean over the batch.
    """

    reads_start = True

    @checked
    def __init__(
        self,
        weight: float,
        reads: Sequence[str] = ("pooled",),
        distance: Literal["cosine", "squared"] = "cosine",
        centred: bool = False,
    ) -> None:
        loss = partial(anchor, distance=distance, centred=centred)
        super().__init__(weight, reads, loss, min_rows=2 if centred else 1, scatter=centred)

    def clouds_of(
        self, views: Sequence[Sequence[Tensor]], labels: Tensor
    ) -> Sequence[Sequence[Tensor]]:
        """Embeddings and those of the start, at each read point."""
        return [[x.flatten(0, -2) for x in pair] for pair in zip(*views, strict=True)]
