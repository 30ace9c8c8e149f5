"""Cluster centring and removal of dominant directions, as one isotropy layer.

Mean, all-but-the-top, cluster mean and cluster PCA are this one class with other numbers: see
the presets in `conf/isotropy/`. N rows, D width, K clusters, R directions.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.cluster_pca import (
    Centre,
    Clip,
    ClusterPCAStats,
    Removal,
    apply_clip,
    apply_cluster_pca,
    fit_clip,
    fit_cluster_pca,
)
from isotrain.geometry.kmeans import kmeans, reseed_empty
from isotrain.geometry.levels import rms_distance
from isotrain.transforms.fitted import EvalStats, FittedTransform, TrainStats
from isotrain.transforms.row_queue import Capacity


class ClusterPCA(FittedTransform[ClusterPCAStats]):
    """Isotropy layer `[N, D] -> [N, D]`: cluster centring, then removal of directions.

    `FittedTransform` says where the statistics come from: the batch, as published, or a queue.

    Args:
        width: D.
        n_clusters: K; 1 = no clustering.
        n_components: R directions removed per cluster; 0 = centring only.
        n_clipped: leading directions of all rows that are shrunk to the bulk level first, before
            rows are clustered: what fine-tuning has put there (a label) is then shrunk as a whole
            and not deleted with the mean of a cluster.
        centre: none | global | cluster | shrink: what a row loses; shrink leaves the offset of its
            cluster from the mean of all, cut to the bulk level.
        removal: project takes directions out | clip shrinks them to the bulk level.
        keep_scale: multiply results so that their rms distance from their mean is that of the rows.
        strength: how far a row goes from what it was to the result, in [0, 1].
        rho: a cluster of n_c rows loses at most floor(rho·(n_c − 1)) directions.
        min_rows: smaller clusters borrow the statistics of all rows.
        stats: batch | queue, the source of training statistics.
        eval_stats: frozen | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).
        n_iterations: k-means iterations at most per fit.
        seed: of the first k-means start; later ones continue from the queue's centroids.

    Raises:
        ValueError: an illegal number or name. RuntimeError: frozen evaluation before `fit`.

    Rajaee and Pilehvar 2021 (cluster-based); Mu and Viswanath 2018 (K = 1).

    >>> layer = ClusterPCA(width=2, n_clusters=1, n_components=0, stats="batch")
    >>> layer(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    warm_KD: Tensor
    is_warm: Tensor
    anchor_KD: Tensor
    centre_KD: Tensor
    direction_KDR: Tensor
    removed_KR: Tensor
    clip_mean_D: Tensor
    clip_DJ: Tensor
    clip_J: Tensor
    scale: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        n_clusters: Annotated[int, Bounds(1)] = 8,
        n_components: Annotated[int, Bounds(0)] = 3,
        n_clipped: Annotated[int, Bounds(0)] = 0,
        centre: Centre = "cluster",
        removal: Removal = "project",
        keep_scale: bool = False,
        strength: Annotated[float, Bounds(least=0, most=1)] = 1.0,
        rho: Annotated[float, Bounds(above=0, most=1)] = 0.25,
        min_rows: Annotated[int, Bounds(1)] = 4,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
        n_iterations: Annotated[int, Bounds(1)] = 3,
        seed: int = 0,
    ) -> None:
        for name, number in (("n_components", n_components), ("n_clipped", n_clipped)):
            if number >= width:
                raise ValueError(f"{name} must be below width={width}, got {number}; lower {name}")
        empty = ClusterPCAStats(
            torch.zeros(n_clusters, width),
            torch.zeros(n_clusters, width),
            torch.zeros(n_clusters, width, n_components),
            {},
            torch.ones(n_clusters, n_components),
            torch.zeros(width),
            torch.zeros(width, n_clipped),
            torch.zeros(n_clipped),
            torch.ones(()),
        )
        super().__init__(width, empty, stats, eval_stats, queue_rows)
        self.n_clusters, self.n_components = n_clusters, n_components
        self.rho, self.min_rows, self.n_iterations = rho, min_rows, n_iterations
        self.n_clipped, self.centre, self.removal = n_clipped, centre, removal
        self.keep_scale, self.strength, self.seed = keep_scale, strength, seed
        self.register_buffer("warm_KD", torch.zeros(n_clusters, width))
        self.register_buffer("is_warm", torch.tensor(False))

    def estimate(self, rows_ND: Tensor, to_freeze: bool = False) -> ClusterPCAStats:
        """Clusters and their statistics; frozen ones, under `stats="batch"`, cap as batches did."""
        as_batches = to_freeze and self.stats == "batch"
        effective = (int(self.queue.batch_rows) if as_batches else 0) or len(rows_ND)
        clip = fit_clip(rows_ND, self.n_clipped, self.rho, min(effective, len(rows_ND)))
        warm_KD = self.warm_KD.to(rows_ND.dtype) if bool(self.is_warm) else None
        stats = fit_cluster_pca(
            apply_clip(rows_ND, clip),
            self.n_clusters,
            self.n_components,
            centre=self.centre,
            removal=self.removal,
            rho=self.rho,
            min_rows=self.min_rows,
            effective_rows=effective if as_batches else None,
            n_iterations=100 if to_freeze else self.n_iterations,
            generator=torch.Generator().manual_seed(self.seed),
            init=None if warm_KD is None else apply_clip(warm_KD, clip),
        )
        scale = rows_ND.new_ones(())
        if self.keep_scale:
            result_ND = apply_cluster_pca(apply_clip(rows_ND, clip), stats, stats.assignment_N)
            before, after = (rms_distance(x.detach()) for x in (rows_ND, result_ND))
            scale = torch.where(after > 0, before / torch.where(after > 0, after, 1.0), 1.0)
        mean_D, direction_DJ, share_J = clip
        return stats._replace(clip_mean_D=mean_D, clip_DJ=direction_DJ, clip_J=share_J, scale=scale)

    def transform(self, rows_ND: Tensor, stats: ClusterPCAStats, are_last: bool) -> Tensor:
        """Rows without the mean and the dominant directions of their cluster."""
        known = are_last and stats.assignment_N is not None
        own_N = stats.assignment_N[-len(rows_ND) :] if known else None  # type: ignore[index]
        clip = Clip(stats.clip_mean_D, stats.clip_DJ, stats.clip_J)  # type: ignore[arg-type]
        result_ND = apply_cluster_pca(apply_clip(rows_ND, clip), stats, own_N)
        if self.keep_scale and stats.scale is not None:
            result_ND = result_ND * stats.scale
        if self.strength == 1.0:
            return result_ND
        return rows_ND + self.strength * (result_ND - rows_ND)

    def follow(self, rows_MD: Tensor) -> None:
        """Move the centroids that k-means starts from."""
        if self.n_clusters == 1:
            return
        generator = torch.Generator().manual_seed(self.seed)
        warm_KD = self.warm_KD.to(rows_MD.dtype) if bool(self.is_warm) else None
        found = kmeans(rows_MD, self.n_clusters, generator=generator, init=warm_KD, n_iterations=3)
        self.warm_KD.copy_(reseed_empty(rows_MD, found, generator))
        self.is_warm.fill_(True)
