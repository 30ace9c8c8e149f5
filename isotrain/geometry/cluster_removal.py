"""Cluster means and removed directions. N embeddings, D width, K clusters, R directions."""

from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.kmeans import cluster_means
from isotrain.geometry.levels import capped_basis, noise_floor
from isotrain.geometry.linalg import leading_directions_of_each, random_directions
from isotrain.geometry.removal import removal_matrix
from isotrain.geometry.rows import has_scatter, have_scatter
from isotrain.geometry.straight_through import straight_through

Centre = Literal["none", "global", "cluster", "shrink"]
Directions = Literal["principal", "random"]
Mode = Literal["project", "clip", "amplify"]
Grad = Literal["detach", "levels", "full"]  # what carries a gradient besides the means


class Removal:
    """Options of cluster removal: what is removed from a cluster's embeddings, and how much.

    Args:
        centre: what is subtracted first: nothing, the global mean (`global`), the cluster mean, or
            (`shrink`) the cluster mean without its offset from the global mean, that offset
            shrunk to the noise floor.
        directions: principal | random (a control with as many).
        mode: project removes directions | clip shrinks them to the noise floor | amplify
            multiplies them by `gain`.
        level: standard deviation after shrinking, in units of the noise floor.
        gain: factor of amplified directions, above 1.
        rho: a cluster of n_c embeddings loses at most floor(rho·(n_c − 1)) directions.
        min_rows: smaller clusters fall back to the statistics of all embeddings.
        grad: detach | levels | full: what carries a gradient besides the means: nothing, noise
            floors and variances, or also directions (one [D, D] eigenproblem per cluster).
        strength: y = x + strength·(result − x), in [0, 1].
        warmup_steps: optimizer steps over which the strength rises from 0.
    """

    @checked
    def __init__(
        self,
        centre: Centre = "cluster",
        directions: Directions = "principal",
        mode: Mode = "project",
        level: Annotated[float, Field(gt=0)] = 1.0,
        gain: Annotated[float, Field(gt=1)] = 3.0,
        rho: Annotated[float, Field(gt=0, le=1)] = 0.25,
        min_rows: Annotated[int, Field(ge=1)] = 4,
        grad: Grad = "detach",
        strength: Annotated[float, Field(ge=0, le=1)] = 1.0,
        warmup_steps: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        self.centre, self.directions, self.mode, self.level = centre, directions, mode, level
        self.gain, self.rho, self.min_rows, self.grad = gain, rho, min_rows, grad
        self.strength, self.warmup_steps = strength, warmup_steps

    @property
    def share(self) -> float:
        """Share of a direction that is removed, before `clip`; negative if amplified."""
        return 1.0 - self.gain if self.mode == "amplify" else 1.0


PROJECT = Removal()


class ClusterRemoval(NamedTuple):
    """Mean and directions removed from the embeddings of each cluster."""

    centre_KD: Tensor
    direction_KDR: Tensor  # orthonormal columns; zero columns past the cap
    removed_KR: Tensor  # share of each direction that is removed; negative if amplified
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
    """Means and directions of given clusters; see `fit_cluster_pca` for the rules."""
    n = len(x_ND)
    all_ND = straight_through(x_ND, n_own)
    own_ND = all_ND if n_clusters == 1 else straight_through(x_ND, n_own, assignment_N, n_clusters)
    mean_KD, count_K = cluster_means(own_ND, assignment_N, n_clusters)
    mean_D = all_ND.mean(dim=0)
    counts = [int(count) for count in count_K.tolist()]
    order_N = assignment_N.argsort(stable=True)  # sorted by cluster
    members = torch.split(x_ND.detach()[order_N], counts)
    falls_back = [
        count * effective_rows / n < removal.min_rows or not scattered
        for count, scattered in zip(counts, have_scatter(members), strict=True)
    ]
    alone = [c for c in range(n_clusters) if not falls_back[c]]
    scattered = bool(alone) or has_scatter(x_ND.detach())

    clouds = [x_CD - mean_KD[c].detach() for c, x_CD in enumerate(members)]
    offset_KD = count_K.sqrt()[:, None] * (mean_KD - mean_D).detach()
    bases = _directions(clouds, falls_back, offset_KD, n_components, exact)
    sizes = [n if falls else count for count, falls in zip(counts, falls_back, strict=True)]
    capped = [
        capped_basis(basis_DS, removal.rho, size * effective_rows / n)
        for basis_DS, size in zip(bases, sizes, strict=True)
    ]
    direction_KDR = torch.stack(capped) * scattered
    if removal.directions == "random":  # as many as leading ones
        drawn_KDR = random_directions(own_ND, n_clusters, n_components, generator)
        direction_KDR = drawn_KDR * (direction_KDR.abs().sum(dim=1, keepdim=True) > 0)
    falls_back_K = torch.tensor(falls_back, device=x_ND.device)
    centre_KD = torch.where(falls_back_K[:, None], mean_D, mean_KD)
    lost = ClusterRemoval(
        centre_KD,
        direction_KDR,
        torch.full_like(direction_KDR[:, 0], removal.share),
        {
            "rows_passed_through": torch.tensor(0.0 if scattered else float(n)),
            "rows_borrowed": torch.tensor(float(n - sum(counts[c] for c in alone)) * scattered),
            "clusters_empty": torch.tensor(float(counts.count(0))),
            "directions_removed": direction_KDR.detach().square().sum().round().float(),
        },
        None,
    )
    follows = removal.grad == "full" and own_ND.requires_grad and n_components > 0
    if follows or removal.mode == "clip" or removal.centre == "shrink":
        # The clouds again, with a gradient if requested.
        member_C = torch.split(order_N, counts)
        owned = [
            all_ND - mean_D if falls else own_ND[member_C[c]] - mean_KD[c]
            for c, falls in enumerate(falls_back)
        ]
        owned = [x_CD.detach() for x_CD in owned] if removal.grad == "detach" else owned
        lost = _shrunk(lost, owned, mean_D, removal, follows)
    if removal.centre in ("none", "global"):
        lost = lost._replace(centre_KD=mean_D.expand_as(centre_KD) * (removal.centre == "global"))
    return lost._replace(centre_KD=lost.centre_KD * scattered)


def _directions(
    clouds: list[Tensor], falls_back: list[bool], offset_KD: Tensor, n_components: int, exact: bool
) -> list[Tensor]:
    """R + 1 directions of each cluster, or global ones: the extra one shows if anything is left."""
    alone = [x_CD for x_CD, falls in zip(clouds, falls_back, strict=True) if not falls]
    rest_ND = None
    if any(falls_back):  # then the first basis is global
        small = [x_CD for x_CD, falls in zip(clouds, falls_back, strict=True) if falls]
        rest_ND = torch.cat([*small, offset_KD])
    wanted = n_components + 1 if n_components > 0 else 0
    bases = leading_directions_of_each(alone, wanted, rest_ND, exact)
    of_all, own = bases[0], iter(bases[len(bases) - len(alone) :])
    return [of_all if falls else next(own) for falls in falls_back]


def _shrunk(
    lost: ClusterRemoval, clouds: list[Tensor], mean_D: Tensor, removal: Removal, follows: bool
) -> ClusterRemoval:
    """Shrink directions and offsets to the noise floor; gradient of directions."""
    clips = removal.mode == "clip"
    if clips or removal.centre == "shrink":
        spectra = [
            noise_floor(cloud_CD, direction_DR, removal.level)
            for cloud_CD, direction_DR in zip(clouds, lost.direction_KDR, strict=True)
        ]
        if clips:
            lost = lost._replace(removed_KR=torch.stack([share_R for _, share_R in spectra]))
        if removal.centre == "shrink":
            offset_KD = lost.centre_KD - mean_D
            length_K = offset_KD.norm(dim=1)
            level_K = torch.stack([level for level, _ in spectra])
            kept_K = (level_K / torch.where(length_K > 0, length_K, 1.0)).clamp(max=1.0)
            lost = lost._replace(centre_KD=lost.centre_KD - kept_K[:, None] * offset_KD)
    if follows:
        n_removed_K = lost.direction_KDR.square().sum(dim=(1, 2)).round().long().tolist()
        matrices = [
            removal.share * removal_matrix(cloud_CD, n_removed, clips, removal.level)
            for cloud_CD, n_removed in zip(clouds, n_removed_K, strict=True)
        ]
        lost = lost._replace(matrix_KDD=torch.stack(matrices))
    return lost
