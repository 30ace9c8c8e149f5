"""Agreement of clusters and labels. N embeddings, D dimensions, C classes, K clusters."""

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import class_ids
from isotrain.geometry.kmeans import kmeans


def cluster_label_nmi(
    x: Tensor | Cloud, labels: Tensor, n_clusters: int = 8, n_iterations: int = 100, seed: int = 0
) -> dict[str, Tensor]:
    """Agreement of k-means clusters of `x [N, D]` with labels; 1 = the same, 0 = none.

    - `nmi` = MI/((H(clusters) + H(labels))/2) in [0, 1]: normalised mutual information. K even
      parts of C < K even classes reach 2·ln C/(ln C + ln K) at most. Biased up, by about (K − 1)(C
      − 1)/(2N) nats of MI.
    - `ari` ≤ 1: the Rand index of pairs, adjusted so that unrelated partitions average 0.

    A layer that subtracts cluster means deletes what they agree on, so `n_clusters` is by default
    that of cluster_pca. `labels [N]` are class numbers. One k-means++ start, drawn with `seed` by
    position.

    Vinh et al. 2010 (NMI_sum); ari: Hubert and Arabie 1985.

    >>> x = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    >>> values = cluster_label_nmi(x, torch.tensor([5, 5, 3, 3]), n_clusters=2)
    >>> {key: round(value.item(), 9) for key, value in values.items()}
    {'nmi': 1.0, 'ari': 1.0}
    """
    x = Cloud.of(x).rows.detach()
    class_N = class_ids(labels.to(x.device), len(x))
    x = x - x.mean(dim=0)
    x = x / x.abs().amax().clamp_min(torch.finfo(x.dtype).tiny)  # squares stay in range
    generator = torch.Generator().manual_seed(seed)
    clusters = kmeans(x, n_clusters, generator=generator, n_iterations=n_iterations)
    n_classes = int(class_N.max()) + 1
    count = torch.bincount(
        clusters.assignment_N * n_classes + class_N, minlength=n_clusters * n_classes
    )
    table_KC = count.view(n_clusters, n_classes).double()
    return {"nmi": _nmi(table_KC), "ari": _ari(table_KC)}


def _nmi(table_KC: Tensor) -> Tensor:
    share_KC = table_KC / table_KC.sum()
    cluster_entropy, class_entropy = _entropy(share_KC.sum(dim=1)), _entropy(share_KC.sum(dim=0))
    information = cluster_entropy + class_entropy - _entropy(share_KC)
    return (2.0 * information / (cluster_entropy + class_entropy)).clamp(0.0, 1.0)


def _entropy(share: Tensor) -> Tensor:
    return torch.special.entr(share).sum()  # −p·ln p, 0 at p = 0


def _ari(table_KC: Tensor) -> Tensor:
    """(pairs together in both − expected) / (its maximum − expected)."""
    joint_pairs, cluster_pairs, class_pairs, all_pairs = (
        (count * (count - 1.0) / 2.0).sum()
        for count in (table_KC, table_KC.sum(dim=1), table_KC.sum(dim=0), table_KC.sum())
    )
    expected, maximum = cluster_pairs * class_pairs / all_pairs, (cluster_pairs + class_pairs) / 2.0
    return torch.where(maximum > expected, (joint_pairs - expected) / (maximum - expected), 1.0)
