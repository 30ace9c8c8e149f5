"""Silhouette of classes. N embeddings, D dimensions."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.clusters import silhouette_values
from isotrain.geometry.groups import hashed_order


@checked
def label_silhouette(
    x: Tensor | Cloud, labels: Tensor, max_rows: Annotated[int, Field(ge=3)] = 4096, seed: int = 0
) -> Tensor:
    """Mean silhouette of `x [N, D]` by label; in [−1, 1], 1 = classes far apart.

    Mean of (b − a)/max(a, b): a = mean Euclidean distance to the others of the class, b = least
    mean distance to those of another class; 0 for a class of one and for equal embeddings. `labels
    [N]` are class numbers. About 0, a little below, where labels are unrelated. Values are small in
    high dimension: compare at equal D. O(N²·D), over the `max_rows` whose position hashes lowest
    (with `seed`).

    Raises:
        ValueError: N < 3, or not 2 to N − 1 whole-numbered classes.

    Rousseeuw 1987; Mickus et al. 2024 set it against IsoScore.

    >>> import torch
    >>> x = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    >>> label_silhouette(x, torch.tensor([0, 0, 1, 1])).item() > 0.98
    True
    """
    x = Cloud.of(x, min_rows=3).rows
    labels = labels.to(x.device)
    if len(x) > max_rows and labels.shape == (len(x),):
        index_M = hashed_order(len(x), seed, x.device)[:max_rows]
        x, labels = x[index_M], labels[index_M]
    return silhouette_values(x, labels).mean()
