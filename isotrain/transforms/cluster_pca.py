"""Cluster centring and removal of dominant directions, as one isotropy layer.

Mean, all-but-the-top, cluster mean and cluster PCA are this one class with other numbers: see
the presets in `conf/isotropy/`. N rows, D width, K clusters, R directions, J spared directions.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.assignment import Assign
from isotrain.geometry.cluster_pca import ClusterPCAStats, apply_cluster_pca, fit_cluster_pca
from isotrain.geometry.cluster_removal import Centre, Directions, Grad, Removal
from isotrain.geometry.kmeans import kmeans, reseed_empty
from isotrain.geometry.spared import N_BETWEEN, fit_spared, without
from isotrain.geometry.spherical import spherical_kmeans
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity, FittedTransform

Protect = Literal["none", "labels"]


class ClusterPCA(FittedTransform[ClusterPCAStats]):
    """Isotropy layer `[N, D] -> [N, D]`: cluster centring, then removal of directions.

    `FittedTransform` says where the statistics come from: the batch, as published, or a queue;
    `fit_cluster_pca` what they are.

    Args:
        width: D.
        n_clusters: K; 1 = no clustering.
        n_components: R directions removed per cluster; 0 = centring only.
        n_clipped: leading directions of all rows that are set aside first, shrunk to the bulk
            level and given back last: what fine-tuning has put there (a label) is not deleted.
        protect: none | labels: the between-class directions (4 at most; scores are cut into five
            classes) are set aside so too. Training rows then come with their labels.
        assign: kmeans | spherical (by cosine) | gmm (diagonal Gaussians, by likelihood).
        softness: 0 = a row belongs to one cluster; above, to all by softmax(−d/softness), d the
            squared distance over that of a row to its own cluster (`memberships`).
        centre: none | global | cluster | shrink: what a row loses; shrink leaves the offset of its
            cluster from the mean of all, cut to the bulk level.
        directions: principal | random (a control: as many, drawn once from `seed`).
        removal: project takes directions out | clip shrinks them to the bulk level.
        level: standard deviation of what is shrunk to the bulk level, in units of the bulk's.
        keep_scale: multiply results so that their rms distance from their mean is that of the rows.
        strength: how far a row goes from what it was to the result, in [0, 1].
        warmup_steps: steps (`observe` in training mode) over which strength rises from 0.
        rho: a cluster of n_c rows loses at most floor(rho·(n_c − 1)) directions.
        min_rows: smaller clusters borrow the statistics of all rows.
        grad: detach | levels | full: what carries a gradient beside rows and means: nothing, bulk
            levels and variances, or also directions (one [D, D] eigenproblem per cluster and step).
        stats: batch | queue | start, the source of training statistics.
        eval_stats: frozen | refit | batch.
        queue_rows: how many recent rows are kept (queue_rows·D·4 bytes).
        n_iterations: rounds of k-means (or EM) at most per training step; 100 where statistics are
            frozen, 3 where the queue's centroids follow.
        seed: of the first k-means start (later ones continue from the queue's centroids), and of
            random directions.

    Raises:
        ValueError: an illegal number or name, or options that contradict each other or would
            change nothing.
        RuntimeError: frozen evaluation before `fit`.

    Rajaee and Pilehvar 2021 (cluster-based); Mu and Viswanath 2018 (K = 1).

    >>> layer = ClusterPCA(width=2, n_clusters=1, n_components=0, stats="batch")
    >>> layer(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    of_clusters = True
    warm_KD: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Bounds(1)],
        n_clusters: Annotated[int, Bounds(1)] = 8,
        n_components: Annotated[int, Bounds(0)] = 3,
        n_clipped: Annotated[int, Bounds(0)] = 0,
        protect: Protect = "none",
        assign: Assign = "kmeans",
        softness: Annotated[float, Bounds(least=0)] = 0.0,
        centre: Centre = "cluster",
        directions: Directions = "principal",
        removal: Removal = "project",
        level: Annotated[float, Bounds(above=0)] = 1.0,
        keep_scale: bool = False,
        strength: Annotated[float, Bounds(least=0, most=1)] = 1.0,
        warmup_steps: Annotated[int, Bounds(0)] = 0,
        rho: Annotated[float, Bounds(above=0, most=1)] = 0.25,
        min_rows: Annotated[int, Bounds(1)] = 4,
        grad: Grad = "detach",
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
        n_iterations: Annotated[int, Bounds(1)] = 3,
        seed: int = 0,
    ) -> None:
        for name, number in (("n_components", n_components), ("n_clipped", n_clipped)):
            if number >= width:
                raise ValueError(f"{name} must be below width={width}, got {number}; lower {name}")
        if protect == "labels" and eval_stats == "batch":
            raise ValueError(
                "protect=labels cannot go with eval_stats=batch: evaluation would read its own "
                "labels; use eval_stats=frozen or refit"
            )
        clips = removal == "clip" and n_components > 0
        shrinks = centre == "shrink" and n_clusters > 1
        has_levels = clips or shrinks or n_clipped > 0 or protect == "labels"
        cut = "removal=clip (with n_components above 0), n_clipped, protect=labels or centre=shrink"
        has_directions = directions == "principal" and n_components > 0
        # Options that would change nothing, and what they act on. What a preset has may rest, as in
        # isotropy=gmm_pca with one cluster, or isotropy=clip without directions.
        clusters = "several clusters: n_clusters above 1"
        removed = "removed directions: n_components above 0"
        idle = [
            (f"level={level}", level != 1.0 and not has_levels, f"what is shrunk: {cut}"),
            ("grad=levels", grad == "levels" and not has_levels, f"what is shrunk: {cut}"),
            (
                "grad=full",
                grad == "full" and not has_directions,
                "principal directions: directions=principal with n_components above 0",
            ),
            (
                f"grad={grad}",
                grad != "detach" and stats == "start",
                "statistics that follow training: stats=queue or batch",
            ),
            ("directions=random", directions == "random" and n_components == 0, removed),
            (f"rho={rho}", rho != 0.25 and n_components == 0, removed),
            ("assign=spherical", assign == "spherical" and n_clusters == 1, clusters),
            (f"softness={softness}", softness != 0 and n_clusters == 1, clusters),
            (f"n_iterations={n_iterations}", n_iterations != 3 and n_clusters == 1, clusters),
        ]
        for option, is_idle, acts_on in idle:
            if is_idle:
                raise ValueError(
                    f"{option} would change nothing here: it acts on {acts_on}; ask for that, or "
                    "leave it out"
                )
        if stats == "queue" and n_clusters > queue_rows:
            raise ValueError(
                f"n_clusters={n_clusters} is more than the rows they are formed of, "
                f"queue_rows={queue_rows}; use fewer clusters or a longer queue"
            )
        n_spared = n_clipped + N_BETWEEN * (protect == "labels")
        n_mixture = n_clusters if assign == "gmm" and n_clusters > 1 else 0
        empty = ClusterPCAStats(
            torch.zeros(n_clusters, width),
            torch.zeros(n_clusters, width),
            torch.zeros(n_clusters, width, n_components),
            {},
            removed_KR=torch.ones(n_clusters, n_components),
            spared_mean_D=torch.zeros(width),
            spared_DJ=torch.zeros(width, n_spared),
            kept_J=torch.ones(n_spared),
            scale=torch.ones(()),
            variance_KD=torch.ones(n_mixture, width),
            log_weight_K=torch.zeros(n_mixture),
            unit=torch.ones(()),
            assign=assign,
            softness=softness,
        )
        super().__init__(width, empty, stats, eval_stats, queue_rows, protect == "labels")
        self.n_clusters, self.n_components = n_clusters, n_components
        self.n_clipped, self.assign, self.softness = n_clipped, assign, softness
        self.centre, self.directions, self.removal = centre, directions, removal
        self.level = level
        self.keep_scale, self.strength, self.warmup_steps = keep_scale, strength, warmup_steps
        self.rho, self.min_rows, self.n_iterations = rho, min_rows, n_iterations
        self.grad, self.seed = grad, seed
        self.register_buffer("warm_KD", torch.zeros(n_clusters, width))
        self.is_warm = False
        self.n_steps = 0

    def estimate(
        self,
        rows_ND: Tensor,
        to_freeze: bool = False,
        labels_N: Tensor | None = None,
        n_own: int | None = None,
    ) -> ClusterPCAStats:
        """Clusters and their statistics; frozen ones, under `stats="batch"`, cap as batches did."""
        as_batches = to_freeze and self.stats == "batch"
        return fit_cluster_pca(
            rows_ND,
            self.n_clusters,
            self.n_components,
            n_clipped=self.n_clipped,
            labels_N=labels_N,
            assign=self.assign,
            softness=self.softness,
            centre=self.centre,
            directions=self.directions,
            removal=self.removal,
            level=self.level,
            keep_scale=self.keep_scale,
            rho=self.rho,
            min_rows=self.min_rows,
            grad="detach" if to_freeze else self.grad,
            effective_rows=(self.queue.batch_rows if as_batches else 0) or None,
            generator=torch.Generator().manual_seed(self.seed),
            init=self.warm_KD.to(rows_ND.dtype) if self.is_warm else None,
            n_iterations=100 if to_freeze else self.n_iterations,
            exact=to_freeze,
            n_own=n_own,
        )

    def transform(self, rows_ND: Tensor, stats: ClusterPCAStats, are_last: bool) -> Tensor:
        """Rows without the mean and the dominant directions of their cluster."""
        known = are_last and stats.assignment_N is not None
        own_N = stats.assignment_N[-len(rows_ND) :] if known else None  # type: ignore[index]
        result_ND = apply_cluster_pca(rows_ND, stats, own_N)
        strength = self.strength_now()
        if strength == 1.0:
            return result_ND
        return rows_ND + strength * (result_ND - rows_ND)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def strength_now(self) -> float:
        """The strength at this step: it rises linearly over the warm-up."""
        if self.warmup_steps == 0:
            return self.strength
        return self.strength * min(1.0, self.n_steps / self.warmup_steps)

    def observe(self, x_ND: Tensor, labels_N: Tensor | None = None) -> None:
        """Push rows into the queue; in training mode that is a step of the warm-up."""
        super().observe(x_ND, labels_N)
        self.n_steps += self.training

    def follow(self, rows_MD: Tensor, labels_M: Tensor | None) -> None:
        """Move the centroids that k-means starts from, of rows without what is set aside."""
        if self.n_clusters == 1:
            return
        if self.n_clipped or labels_M is not None:
            spared = fit_spared(rows_MD, self.n_clipped, labels_M)
            rows_MD = without(rows_MD, spared)
        generator = torch.Generator().manual_seed(self.seed)
        warm_KD = self.warm_KD.to(rows_MD.dtype) if self.is_warm else None
        find = spherical_kmeans if self.assign == "spherical" else kmeans
        found = find(rows_MD, self.n_clusters, generator=generator, init=warm_KD, n_iterations=3)
        self.warm_KD.copy_(reseed_empty(rows_MD, found, generator))
        self.is_warm = True

    def get_extra_state(self) -> Tensor:
        """Whether there are centroids to start from, and the steps made, for a checkpoint."""
        return torch.tensor([int(self.is_warm), self.n_steps])

    def set_extra_state(self, state: Tensor) -> None:
        """What a checkpoint says of them."""
        is_warm, self.n_steps = state.tolist()
        self.is_warm = bool(is_warm)
