"""Cluster offsets and directions shrunk to the noise floor, as a layer. K clusters, D width."""

import torch
from torch import Tensor

from isotrain.geometry.cluster_pca import CenteredClusters
from isotrain.transforms.clip import Clip


class ShrinkClip(Clip):
    """Isotropy layer `[N, D] -> [N, D]`: `Clip`, and the offsets of clusters are shrunk too.

    The offset of a cluster's mean from that of all embeddings is not deleted: it keeps the length
    of the cluster's noise floor, at most its own.

    Ours.

    >>> layer = ShrinkClip(width=1, n_clusters=2, n_components=0, stats="batch")
    >>> x = torch.tensor([0.0, 1.0, 2.0, 3.0, 70.0, 71.0, 72.0, 73.0])[:, None]
    >>> bool(layer(x)[:4].mean() < -1.0)  # one cluster is still left of the other
    True
    """

    def centres(self, clusters: CenteredClusters, level_K: Tensor) -> Tensor:
        """The mean of each cluster, less as much of its offset as is kept."""
        offset_KD = clusters.centre_KD - clusters.mean_D
        length_K = offset_KD.norm(dim=1)
        share_K = (level_K / torch.where(length_K > 0, length_K, 1.0)).clamp(max=1.0)
        centre_KD = clusters.centre_KD - share_K[:, None] * offset_KD
        return centre_KD * clusters.has_scatter
