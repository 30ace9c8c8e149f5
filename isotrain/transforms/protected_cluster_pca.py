"""Cluster PCA with protected directions, as an isotropy layer. N embeddings, D width."""

from typing import Annotated

from pydantic import Field

from isotrain.arguments import checked
from isotrain.geometry.assignment import KMEANS, Assignment
from isotrain.geometry.cluster_removal import PROJECT, Removal
from isotrain.geometry.protected import LEADING, Protection
from isotrain.transforms.base import EvalStats, TrainStats
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.fitted import Capacity


class ProtectedClusterPCA(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: cluster PCA with protected directions.

    Protected are global leading directions, or the between-class directions of the training
    labels. Cluster PCA acts on the rest; they are added back, shrunk to its noise floor.

    Args:
        protect: which directions; three leading ones by default.
        The others are those of `ClusterPCA`.

    Raises:
        ValueError: labels with `eval_stats="batch"`.

    Ours.

    >>> import torch
    >>> layer = ProtectedClusterPCA(2, 1, 0, Protection(n_leading=1), stats="batch")
    >>> layer(torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]])).abs().tolist()[0]
    [1.0, 0.0]
    """

    @checked
    def __init__(
        self,
        width: Annotated[int, Field(ge=1)],
        n_clusters: Annotated[int, Field(ge=1)] = 8,
        n_components: Annotated[int, Field(ge=0)] = 3,
        protect: Protection = LEADING,
        assign: Assignment = KMEANS,
        removal: Removal = PROJECT,
        stats: TrainStats = "queue",
        eval_stats: EvalStats = "frozen",
        queue_rows: Capacity = 1024,
        seed: int = 0,
    ) -> None:
        if protect.n_leading >= width:
            raise ValueError(
                f"n_leading must be below width={width}, got {protect.n_leading}; lower n_leading"
            )
        if protect.labels and eval_stats == "batch":
            raise ValueError(
                "protect.labels=true cannot go with eval_stats=batch: evaluation would read its "
                "own labels; use eval_stats=frozen or refit"
            )
        self.protect = protect  # the base constructor builds queue and buffers from it
        super().__init__(
            width, n_clusters, n_components, assign, removal, stats, eval_stats, queue_rows, seed
        )
