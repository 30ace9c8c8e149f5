"""Cluster centring and removal of dominant directions, as an isotropy layer.

Mean centring, all-but-the-top, cluster mean and cluster PCA are presets of this class: see
`conf/isotropy/`. N embeddings, D width, K clusters, R directions, M recent ones.
"""

import warnings
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.assignment import KMEANS, Assignment
from isotrain.geometry.cluster_pca import ClusterPCAStats, apply_cluster_pca, fit_cluster_pca
from isotrain.geometry.cluster_removal import PROJECT, Removal
from isotrain.geometry.kmeans import kmeans, reseed_empty, spherical_kmeans
from isotrain.geometry.protected import Protection, fit_protected, without_protected
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.fitted import Capacity, FittedTransform, not_compiled

MOST_ITERATIONS = 100  # of k-means or EM, for frozen statistics


class ClusterPCA(FittedTransform[ClusterPCAStats]):
    """Isotropy layer `[N, D] -> [N, D]`: cluster centring, then removal of directions.

    Embeddings are assigned to K clusters; each subtracts the mean of its cluster and loses the
    cluster's R dominant directions: y = (I − V_c·V_cᵀ)(x − m_c). `fit_cluster_pca` estimates,
    `apply_cluster_pca` removes. Statistics come from the batch, as published, or from a queue: see
    `FittedTransform`.

    Args:
        width: D.
        n_clusters: K; 1 = no clustering.
        n_components: R directions removed per cluster; 0 = centring only.
        assign: how embeddings are assigned to clusters; k-means by default.
        removal: what is removed from a cluster; by default its mean and leading directions.
        stats, eval_stats, queue_rows: as in `FittedTransform`.
        seed: of the first k-means start (later ones continue from the queue's centroids), and of
            random directions.

    Rajaee and Pilehvar 2021 (cluster-based); Mu and Viswanath 2018 (K = 1).

    >>> layer = ClusterPCA(width=2, n_clusters=1, n_components=0, stats="batch")
    >>> layer(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    of_clusters = True
    protect: Protection | None = None  # directions to protect
    warm_KD: Tensor

    @checked
    def __init__(
        self,
        width: Annotated[int, Field(ge=1)],
        n_clusters: Annotated[int, Field(ge=1)] = 8,
        n_components: Annotated[int, Field(ge=0)] = 3,
        assign: Assignment = KMEANS,
        removal: Removal = PROJECT,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
        seed: int = 0,
    ) -> None:
        if n_components >= width:
            raise ValueError(
                f"n_components must be below width={width}, got {n_components}; lower n_components"
            )
        if stats == "queue" and n_clusters > queue_rows:
            raise ValueError(
                f"n_clusters={n_clusters} is more than the embeddings they are formed of, "
                f"queue_rows={queue_rows}; use fewer clusters or a longer queue"
            )
        empty = _empty_statistics(width, n_clusters, n_components, assign, self.protect)
        reads_labels = self.protect is not None and self.protect.labels
        super().__init__(width, empty, stats, eval_stats, queue_rows, reads_labels)
        self.n_clusters, self.n_components, self.seed = n_clusters, n_components, seed
        self.assign, self.removal = assign, removal
        self.assign_frozen = Assignment(assign.method, assign.softness, MOST_ITERATIONS)
        self.register_buffer("warm_KD", torch.zeros(n_clusters, width))
        self.is_warm, self.n_steps = False, 0
        if idle := _idle_options(self):
            warnings.warn(f"{', '.join(idle)}: without effect in this layer", stacklevel=4)

    def estimate(
        self,
        x_ND: Tensor,
        to_freeze: bool = False,
        n_own: int | None = None,
        labels_N: Tensor | None = None,
    ) -> ClusterPCAStats:
        """Clusters c, their means m_c and dominant directions V_c, and what is protected."""
        # Frozen statistics use the caps of a batch if training statistics are of batches.
        as_batches = to_freeze and self.stats == "batch"
        return fit_cluster_pca(
            x_ND,
            self.n_clusters,
            self.n_components,
            self.assign_frozen if to_freeze else self.assign,
            self.removal,
            self.protect,
            labels_N=labels_N,
            effective_rows=(self.queue.batch_rows if as_batches else 0) or None,
            generator=torch.Generator().manual_seed(self.seed),
            init=self.warm_KD.to(x_ND.dtype) if self.is_warm else None,
            exact=to_freeze,
            n_own=n_own,
        )

    def transform(self, x_ND: Tensor, stats: ClusterPCAStats, are_last: bool) -> Tensor:
        """(I − V_c·V_cᵀ)(x − m_c), or part of the way from x to it if `strength` < 1."""
        all_N = stats.assignment_N if are_last else None
        result_ND = apply_cluster_pca(x_ND, stats, None if all_N is None else all_N[-len(x_ND) :])
        warms_up = self.removal.warmup_steps > 0  # only then is there a graph break
        strength: float = self.strength_now() if warms_up else self.removal.strength
        return result_ND if strength == 1.0 else x_ND + strength * (result_ND - x_ND)

    @not_compiled
    def strength_now(self) -> float:
        """The strength at this step; it rises linearly over the warm-up."""
        strength, n_warm = self.removal.strength, self.removal.warmup_steps
        return strength * min(1.0, self.n_steps / n_warm) if n_warm else strength

    def observe(self, x_ND: Tensor, labels_N: Tensor | None = None) -> None:
        """Push embeddings into the queue; in training mode this counts as a warm-up step."""
        super().observe(x_ND, labels_N)
        self.n_steps += self.training

    def follow(self, x_MD: Tensor, labels_M: Tensor | None) -> None:
        """Update the initial centroids of k-means, outside the protected directions."""
        if self.n_clusters == 1:
            return
        if self.protect is not None and self.protect.n_directions() > 0:
            x_MD = without_protected(x_MD, fit_protected(x_MD, self.protect.n_leading, labels_M))
        generator = torch.Generator().manual_seed(self.seed)
        warm_KD = self.warm_KD.to(x_MD.dtype) if self.is_warm else None
        cluster = spherical_kmeans if self.assign.method == "spherical" else kmeans
        clusters = cluster(x_MD, self.n_clusters, generator=generator, init=warm_KD, n_iterations=3)
        self.warm_KD.copy_(reseed_empty(x_MD, clusters, generator))
        self.is_warm = True

    def get_extra_state(self) -> Tensor:
        """Whether there are initial centroids, and the number of steps."""
        return torch.tensor([int(self.is_warm), self.n_steps])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore them from a checkpoint."""
        is_warm, self.n_steps = state.tolist()
        self.is_warm = bool(is_warm)


def _empty_statistics(
    width: int, n_clusters: int, n_components: int, assign: Assignment, protect: Protection | None
) -> ClusterPCAStats:
    """Statistics of zeros and ones, in the shapes of the buffers."""
    n_mixture = n_clusters if assign.method == "gmm" and n_clusters > 1 else 0
    empty = ClusterPCAStats(
        torch.zeros(n_clusters, width),
        torch.zeros(n_clusters, width),
        torch.zeros(n_clusters, width, n_components),
        {},
        torch.ones(n_clusters, n_components),
        torch.ones(n_mixture, width),
        torch.zeros(n_mixture),
        torch.ones(()),
        assign,
    )
    if protect is None:
        return empty
    return empty._replace(
        spared_mean_D=torch.zeros(width),
        spared_DJ=torch.zeros(width, protect.n_directions()),
        kept_J=torch.ones(protect.n_directions()),
        scale=torch.ones(()),
    )


def _idle_options(layer: ClusterPCA) -> list[str]:
    """Options without effect: on clusters if K = 1, or on directions if R = 0."""
    alone, removes = layer.n_clusters == 1, layer.n_components > 0
    assign, r, protect = layer.assign, layer.removal, layer.protect
    shrinks = (r.mode == "clip" and removes) or (r.centre == "shrink" and not alone)
    has_gradient = (
        layer.stats != "start"
        and {
            "detach": True,
            "levels": shrinks or (protect is not None and protect.n_directions() > 0),
            "full": removes and r.directions == "principal",
        }[r.grad]
    )
    idle = {
        "assign.method": alone and assign.method == "spherical",
        "assign.softness": alone and assign.softness > 0,
        "assign.n_iterations": alone and assign.n_iterations != KMEANS.n_iterations,
        "removal.directions": not removes and r.directions == "random",
        "removal.rho": not removes and r.rho != PROJECT.rho,
        "removal.level": not shrinks and r.level != PROJECT.level,
        "removal.gain": not (removes and r.mode == "amplify") and r.gain != PROJECT.gain,
        "removal.grad": not has_gradient and r.grad != PROJECT.grad,
    }
    return [name for name, is_idle in idle.items() if is_idle]
