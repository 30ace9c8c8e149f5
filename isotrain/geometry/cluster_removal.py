"""Other removals than projection. N embeddings, D width, K clusters, R directions."""

from typing import Literal

import torch
from torch import Tensor

from isotrain.geometry.cluster_pca import CenteredClusters, ClusterPCAStats
from isotrain.geometry.levels import noise_floor
from isotrain.geometry.linalg import random_directions
from isotrain.geometry.removal import removal_matrix

Removal = Literal["project", "random", "amplify", "clip", "shrink_clip"]
Grad = Literal["detach", "full"]  # what carries a gradient besides the means
GAIN = 3.0  # factor of amplified directions


def vary_removal(
    stats: ClusterPCAStats,
    clusters: CenteredClusters,
    removal: Removal,
    level: float,
    grad: Grad,
    generator: torch.Generator,
) -> ClusterPCAStats:
    """Statistics of another removal than projection, or with a gradient of directions.

    `random` removes as many random directions as there are leading ones, `amplify` multiplies
    leading ones by 3, `clip` shrinks them to `level` times the noise floor, and `shrink_clip` the
    offset of each cluster's mean from the global one too. The noise floor of a cloud is its mean
    variance per dimension outside the directions.
    """
    if removal == "random":
        n_clusters, _, n_components = stats.direction_KDR.shape
        drawn_KDR = random_directions(stats.anchor_KD, n_clusters, n_components, generator)
        is_real_K1R = stats.direction_KDR.abs().sum(dim=1, keepdim=True) > 0
        return stats._replace(direction_KDR=drawn_KDR * is_real_K1R)
    share, clips = 1.0 - GAIN if removal == "amplify" else 1.0, removal in ("clip", "shrink_clip")
    stats = stats._replace(removed_KR=share * stats.removed_KR)
    follows = grad == "full" and stats.centre_KD.requires_grad and stats.direction_KDR.numel() > 0
    if not (clips or follows):
        return stats
    clouds = clusters.clouds()
    if grad == "detach":
        clouds = [cloud_CD.detach() for cloud_CD in clouds]
    if clips:
        stats = _clip(stats, clusters, clouds, level, removal == "shrink_clip")
    if follows:
        n_removed_K = stats.direction_KDR.square().sum(dim=(1, 2)).round().long().tolist()
        matrices = [
            share * removal_matrix(cloud_CD, n_removed, clips, level)
            for cloud_CD, n_removed in zip(clouds, n_removed_K, strict=True)
        ]
        stats = stats._replace(matrix_KDD=torch.stack(matrices))
    return stats


def _clip(
    stats: ClusterPCAStats,
    clusters: CenteredClusters,
    clouds: list[Tensor],
    level: float,
    shrinks_offsets: bool,
) -> ClusterPCAStats:
    floors = [
        noise_floor(cloud_CD, direction_DR, level)
        for cloud_CD, direction_DR in zip(clouds, stats.direction_KDR, strict=True)
    ]
    stats = stats._replace(removed_KR=torch.stack([share_R for _, share_R in floors]))
    if not shrinks_offsets:
        return stats
    offset_KD = clusters.centre_KD - clusters.mean_D
    length_K = offset_KD.norm(dim=1)
    level_K = torch.stack([level for level, _ in floors])
    kept_K = (level_K / torch.where(length_K > 0, length_K, 1.0)).clamp(max=1.0)
    centre_KD = clusters.centre_KD - kept_K[:, None] * offset_KD
    return stats._replace(centre_KD=centre_KD * clusters.has_scatter)
