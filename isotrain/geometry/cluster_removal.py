"""What the rows of each cluster lose: a mean, and dominant directions.

N rows, D width, K clusters, R directions of a cluster.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from isotrain.arguments import Bounds, checked
from isotrain.geometry.following import following
from isotrain.geometry.kmeans import cluster_means
from isotrain.geometry.levels import bulk_level, capped_basis
from isotrain.geometry.linalg import leading_directions_of_each, random_directions
from isotrain.geometry.removal import removal_matrix
from isotrain.geometry.rows import has_scatter

Centre = Literal["none", "global", "cluster", "shrink"]
Directions = Literal["principal", "random"]
Mode = Literal["project", "clip"]
Grad = Literal["detach", "levels", "full"]  # what carries a gradient beside the means


class Removal:
    """What the embeddings of a cluster lose, and how much of it.

    Args:
        centre: what is subtracted first: nothing, the mean of all embeddings (`global`), that of
            the cluster, or (`shrink`) that of the cluster but for its offset from the mean of
            all, cut to the bulk level.
        directions: principal | random (a control: as many).
        mode: project takes directions out | clip shrinks them to the bulk level.
        level: standard deviation of what is shrunk, in units of the bulk's.
        rho: a cluster of n_c embeddings loses at most floor(rho·(n_c − 1)) directions.
        min_rows: smaller clusters fall back to the statistics of all embeddings.
        grad: detach | levels | full: what carries a gradient beside the means: nothing, bulk
            levels and variances, or also directions (one [D, D] eigenproblem per cluster).
        strength: y = x + strength·(result − x), in [0, 1].
        warmup_steps: optimizer steps over which the strength rises from 0.

    Raises:
        ValueError: an illegal number or name.
    """

    @checked
    def __init__(
        self,
        centre: Centre = "cluster",
        directions: Directions = "principal",
        mode: Mode = "project",
        level: Annotated[float, Bounds(above=0)] = 1.0,
        rho: Annotated[float, Bounds(above=0, most=1)] = 0.25,
        min_rows: Annotated[int, Bounds(1)] = 4,
        grad: Grad = "detach",
        strength: Annotated[float, Bounds(least=0, most=1)] = 1.0,
        warmup_steps: Annotated[int, Bounds(0)] = 0,
    ) -> None:
        self.centre, self.directions, self.mode, self.level = centre, directions, mode, level
        self.rho, self.min_rows, self.grad = rho, min_rows, grad
        self.strength, self.warmup_steps = strength, warmup_steps


PROJECT = Removal()


class ClusterRemoval(NamedTuple):
    """What is subtracted from the rows of a cluster, and what is taken out of them then."""

    centre_KD: Tensor
    direction_KDR: Tensor  # orthonormal columns; zero columns past the cap
    removed_KR: Tensor  # share of each direction that is taken out
    counters: dict[str, Tensor]
    matrix_KDD: Tensor | None  # Σ removed·v·vᵀ with a gradient


def fit_cluster_removal(
    x_ND: Tensor,
    assignment_N: Tensor,
    n_clusters: int,
    n_components: int,
    removal: Removal,
    n_own: int,
    *,
    effective_rows: int,
    generator: torch.Generator | None,
    exact: bool,
) -> ClusterRemoval:
    """Means and directions of given clusters; `fit_cluster_pca` has the rules."""
    clips, shrinks = removal.mode == "clip", removal.centre == "shrink"
    n, detached_ND = len(x_ND), x_ND.detach()
    all_ND = following(x_ND, n_own)
    x_ND = all_ND if n_clusters == 1 else following(x_ND, n_own, assignment_N, n_clusters)
    mean_KD, count_K = cluster_means(x_ND, assignment_N, n_clusters)
    counts = [int(c) for c in count_K.tolist()]
    members = [detached_ND[assignment_N == c] for c in range(n_clusters)]
    borrows = [
        count * effective_rows / n < removal.min_rows or not has_scatter(rows_CD)
        for count, rows_CD in zip(counts, members, strict=True)
    ]
    mean_D = all_ND.mean(dim=0)
    clouds = [x - mean_KD[c].detach() for c, x in enumerate(members)]
    alone = [c for c, borrow in enumerate(borrows) if not borrow]
    rest_ND = None
    if any(borrows):  # then the first basis is that of all rows, for the small clusters
        offset_KD = count_K.sqrt()[:, None] * (mean_KD - mean_D).detach()
        rest_ND = torch.cat([*(clouds[c] for c, borrow in enumerate(borrows) if borrow), offset_KD])
    # One direction more than is removed tells whether anything would be left.
    wanted = n_components + 1 if n_components > 0 else 0
    bases = leading_directions_of_each(
        [clouds[c] for c in alone], wanted, rest_ND, n_settled=n_components, exact=exact
    )
    owners = [n] * any(borrows) + [counts[c] for c in alone]
    bases = [
        capped_basis(basis_DS, removal.rho, count * effective_rows / n)
        for basis_DS, count in zip(bases, owners, strict=True)
    ]
    own = dict(zip(alone, bases[len(bases) - len(alone) :], strict=True))
    scattered = not all(borrows) or has_scatter(detached_ND)
    direction_KDR = torch.stack([own.get(c, bases[0]) for c in range(n_clusters)]) * scattered
    if removal.directions == "random":  # as many as there are leading ones
        drawn_KDR = random_directions(x_ND, n_clusters, n_components, generator)
        direction_KDR = drawn_KDR * (direction_KDR.abs().sum(dim=1, keepdim=True) > 0)
    borrow_K = torch.tensor(borrows, device=x_ND.device)
    centre_KD = torch.where(borrow_K[:, None], mean_D, mean_KD)
    removed_KR = torch.ones_like(direction_KDR[:, 0])
    follows = removal.grad == "full" and x_ND.requires_grad and n_components > 0
    owned = []  # the clouds again, with a gradient, where it is asked for
    if follows or clips or shrinks:
        owned = [
            all_ND - mean_D if borrow else x_ND[assignment_N == c] - mean_KD[c]
            for c, borrow in enumerate(borrows)
        ]
        owned = [cloud_CD.detach() for cloud_CD in owned] if removal.grad == "detach" else owned
    if clips or shrinks:
        spectra = [
            bulk_level(cloud_CD, direction_DR, removal.level)
            for cloud_CD, direction_DR in zip(owned, direction_KDR, strict=True)
        ]
        if clips:
            removed_KR = torch.stack([share_R for _, share_R in spectra])
        if shrinks:
            offset_KD = centre_KD - mean_D
            length_K = offset_KD.norm(dim=1)
            level_K = torch.stack([level for level, _ in spectra])
            kept_K = (level_K / torch.where(length_K > 0, length_K, 1.0)).clamp(max=1.0)
            centre_KD = centre_KD - kept_K[:, None] * offset_KD
    if removal.centre in ("none", "global"):
        centre_KD = mean_D.expand_as(centre_KD) * (removal.centre == "global")
    counters = {
        "rows_passed_through": 0 if scattered else n,
        "rows_borrowed": (n - sum(counts[c] for c in alone)) * scattered,
        "clusters_empty": counts.count(0),
        "directions_removed": float(direction_KDR.square().sum().round()),
    }
    matrix_KDD = None
    if follows:
        n_removed_K = direction_KDR.square().sum(dim=(1, 2)).round().long().tolist()
        matrix_KDD = torch.stack(
            [
                removal_matrix(cloud_CD, n_removed, clips, removal.level)
                for cloud_CD, n_removed in zip(owned, n_removed_K, strict=True)
            ]
        )
    return ClusterRemoval(
        centre_KD * scattered,
        direction_KDR,
        removed_KR,
        {name: torch.tensor(float(value)) for name, value in counters.items()},
        matrix_KDD,
    )
