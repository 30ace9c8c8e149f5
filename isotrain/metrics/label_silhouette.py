"""Silhouette of the classes of rows. N rows, D dimensions."""

from __future__ import annotations

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.clusters import silhouette_values
from isotrain.geometry.groups import hashed_order


def label_silhouette(
    x: Tensor | Cloud, labels: Tensor, max_rows: int = 4096, seed: int = 0
) -> Tensor:
    """Mean silhouette of the rows of `x [N, D]` by label; in [−1, 1], 1 = classes far apart.

    Mean of (b − a)/max(a, b): a = mean Euclidean distance to the other rows of the class, b =
    least mean distance to those of another class; 0 for the only row of a class and for equal
    rows. `labels [N]` are whole class numbers. Unitless; unchanged by rotation, translation and
    scale. Near 0 where labels have nothing to do with the rows, and then a little below it.
    In high dimension all distances are alike and values small: compare at equal D.

    O(N²·D). Above `max_rows` rows, those whose position hashes lowest (with `seed`) stand for
    all: then the order of the rows decides which.

    Raises:
        ValueError: not `[N, D]`, N < 3, a NaN or infinity, labels that are not one whole number
            per row, not 2 to N − 1 classes among the rows measured, or `max_rows` < 3.

    Rousseeuw 1987; Mickus et al. 2024 set it against IsoScore.

    >>> import torch
    >>> x = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    >>> label_silhouette(x, torch.tensor([0, 0, 1, 1])).item() > 0.98
    True
    """
    x = Cloud.of(x, min_rows=3).rows
    if max_rows < 3:
        raise ValueError(f"max_rows must be at least 3, got {max_rows}")
    labels = labels.to(x.device)
    if len(x) > max_rows and labels.shape == (len(x),):
        kept_M = hashed_order(len(x), seed, x.device)[:max_rows]
        x, labels = x[kept_M], labels[kept_M]
    return silhouette_values(x, labels).mean()
