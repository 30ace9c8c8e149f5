"""S_inter, S_intra, clusters, LID and a map of one layer, as records.

N embeddings, D dimensions, n of a cluster, K clusters, R directions, M of a sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.clusters.rows import Sample, distinct_rows, is_symbol
from isotrain.analysis.jackknife import anisotropy
from isotrain.analysis.plots import principal_map
from isotrain.analysis.types import Found, Record
from isotrain.geometry.clusters import centre_rows, choose_clusters, silhouette_values
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import check_groups, hashed_order, sample_groups
from isotrain.metrics.lid import lid_estimate
from isotrain.metrics.self_similarity import self_similarity

N_TOLD = 6  # tokens that are named of a cluster


def measure_layer(
    sample: Sample, layer: int, n_map: int, rule: tuple[int, float, int], seed: int
) -> Found:
    """S_inter and S_intra of a layer, its clusters, and a map of `n_map` embeddings (none if 0).

    `rule`: k_max, cut and n_silhouette of `clusters_by_silhouette`.
    """
    x_ND, type_N = _distinct(sample, layer)
    found = clusters_by_silhouette(x_ND, *rule, seed)
    x_ND = x_ND.double()
    forms = {
        "": [(x_ND, type_N)],
        "_centred": centred_parts(x_ND, type_N, torch.zeros_like(found.assignment_N)),
        "_clustered": centred_parts(x_ND, type_N, found.assignment_N),
    }
    record: dict[str, Any] = {
        "kind": "layer",
        "layer": layer,
        "n_rows": len(x_ND),
        "n_repeated": len(sample.type_N) - len(x_ND),
        "n_types": len(set(type_N.tolist())),
        "k": found.k,
        "best_k": found.best_k,
        "silhouette": found.silhouette,
        "n_smallest": int(found.assignment_N.bincount().min()),
    }
    for form, parts in forms.items():
        own = cosines(parts, seed)
        for name, over in (("s_inter", own.inter), ("s_intra", own.intra)):
            record |= {f"{name}{form}": over.value, f"{name}{form}_error": over.error}
            if form == "_clustered":
                record |= {
                    f"{name}_by_rows": over.by_rows,
                    f"{name}_by_rows_error": over.by_rows_error,
                    f"{name}_without_error": over.n_without_error,
                }
    arrays = {}
    if n_map:
        map_N3, share_3 = principal_map(x_ND)
        record["map_variance"] = float(share_3.sum())
        types = type_N[:n_map].tolist()
        arrays = {
            f"layer-{layer}/map": map_N3[:n_map].float().numpy(),
            f"layer-{layer}/cluster": found.assignment_N[:n_map].short().numpy(),
            f"layer-{layer}/frequency": np.array([sample.frequency_of[t] for t in types]),
            f"layer-{layer}/symbol": np.array([is_symbol(sample.token_of[t]) for t in types]),
        }
    told = [_cluster(k, found, type_N, sample, layer) for k in range(found.k) if found.k > 1]
    return Found([record, *told], arrays)


def measure_lid(sample: Sample, n_neighbors: int, max_queries: int | None, seed: int) -> Found:
    """LID of each layer, and its mean over the layers of `averaged`.

    The error of the mean is the mean of the errors, an upper bound: errors of layers correlate.
    """
    records: list[dict[str, Any]] = []
    for layer in sample.layers:
        own = dimensions(_distinct(sample, layer)[0], n_neighbors, max_queries, seed)
        records.append({"kind": "lid", "layer": layer, **own})
    averaged = [record for record in records if record["layer"] in sample.averaged]
    ends = dict.fromkeys((sample.averaged[0], sample.averaged[-1]))
    mean: dict[str, Any] = {
        "kind": "lid mean",
        "n_layers": len(averaged),
        "of_layers": " to ".join(map(str, ends)),
    }
    for name in ("lid", "lid_squared", "lid_cosine", "lid_cosine_squared"):
        for key in (name, f"{name}_error"):
            values = [record[key] for record in averaged]
            mean[key] = None if None in values else sum(values) / len(values)
    return Found([*records, mean])


def _distinct(sample: Sample, layer: int) -> tuple[Tensor, Tensor]:
    x_ND = sample.rows(layer)
    at_N = distinct_rows(x_ND, sample.type_N)
    return x_ND[at_N], sample.type_N[at_N]


def _cluster(cluster: int, found: Clustering, type_N: Tensor, sample: Sample, layer: int) -> Record:
    """Size and content of a cluster."""
    types = type_N[found.assignment_N == cluster].tolist()
    symbols = sum(is_symbol(sample.token_of[t]) for t in types)
    frequent: Mapping[int, int] = dict(Counter(types).most_common(N_TOLD))
    return {
        "kind": "cluster",
        "layer": layer,
        "cluster": cluster,
        "n": len(types),
        "share": len(types) / len(type_N),
        "symbols": symbols / len(types),
        "n_types": len(set(types)),
        "median_frequency": float(np.median([sample.frequency_of[t] for t in types])),
        "tokens": " ".join(sample.token_of[t] for t in frequent),
    }


class Clustering(NamedTuple):
    """Clusters 0..k−1 in descending order of size, and how they were chosen."""

    assignment_N: Tensor
    k: int  # 1 where the silhouette is below the cut
    best_k: int  # of the best silhouette, whatever that is
    silhouette: float | None  # of best_k; None where there are too few rows


class OverParts(NamedTuple):
    """A value over parts of a cloud; None if undefined."""

    value: float | None = None  # unweighted mean over parts
    error: float | None = None
    by_rows: float | None = None  # mean over parts, weighted by their rows
    by_rows_error: float | None = None
    n_without_error: int = 0  # parts that both errors leave out, since they have too few types


class Cosines(NamedTuple):
    """S_inter and S_intra over parts, with standard errors over types."""

    inter: OverParts
    intra: OverParts


def clusters_by_silhouette(
    x_ND: Tensor, k_max: int, cut: float, n_silhouette: int, seed: int
) -> Clustering:
    """Clusters of `choose_clusters`, with the silhouette of `n_silhouette` sampled embeddings.

    >>> x = torch.tensor([[0.0], [0.1], [9.0], [9.1], [9.2]])
    >>> found = clusters_by_silhouette(x, 4, 0.1, 100, 0)
    >>> found.assignment_N.tolist(), found.k
    ([1, 1, 0, 0, 0], 2)
    """
    everything = torch.zeros(len(x_ND), dtype=torch.long)
    found = choose_clusters(x_ND, k_max, -1.0, n_silhouette, seed)
    sample_M = hashed_order(len(x_ND), seed)[:n_silhouette]
    label_M = found.assignment_N[sample_M]
    if not 2 <= len(torch.unique(label_M)) < len(label_M):
        return Clustering(everything, 1, 1, None)
    silhouette = float(silhouette_values(x_ND[sample_M], label_M).mean())
    if silhouette < cut:
        return Clustering(everything, 1, found.n_clusters, silhouette)
    by_size_K = found.assignment_N.bincount().argsort(descending=True, stable=True)
    rank_K = by_size_K.argsort()
    k = found.n_clusters
    return Clustering(rank_K[found.assignment_N], k, k, silhouette)


def cosines(parts: Iterable[tuple[Tensor, Tensor]], seed: int) -> Cosines:
    """S_inter and S_intra over parts (embeddings, types) of a cloud.

    The values of one part are those of the metrics. Published is the unweighted mean over parts;
    weighted by size, small parts hardly count. Errors are over types, of S_inter by jackknife;
    over K parts √(Σ e²)/K. Parts without two types are left out of S_inter, those without two
    embeddings of a type out of S_intra.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> found = cosines([(x, torch.tensor([4, 4, 5]))], seed=0)
    >>> found.inter.value, found.intra.value
    (0.0, 1.0)
    """
    inter: list[_Part] = []
    intra: list[_Part] = []
    for x_nD, type_n in parts:
        groups = check_groups(x_nD, type_n)
        if len(groups.id_G) > 1:
            drawn_GD = x_nD[sample_groups(groups, groups.count_G > 0, 1, seed)[:, 0]]
            error = math.nan
            if len(drawn_GD) > 2:
                error = float(anisotropy(drawn_GD.double(), torch.arange(len(drawn_GD))).error)
            inter.append(_Part(float(mean_pairwise_cosine(drawn_GD)), error, len(x_nD)))
        if int(groups.count_G.max()) > 1:
            own = self_similarity(x_nD, type_n, min_count=2)
            error = float(own.get("standard_error", math.nan))
            intra.append(_Part(float(own["value"]), error, len(x_nD)))
    return Cosines(_over_parts(inter), _over_parts(intra))


def centred_parts(
    x_ND: Tensor, type_N: Tensor, assignment_N: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Centred embeddings of each cluster, and their types."""
    members = [assignment_N == k for k in range(int(assignment_N.max()) + 1)]
    return [(centre_rows(x_ND[at_N]), type_N[at_N]) for at_N in members]


def dimensions(
    x_ND: Tensor, n_neighbors: int, max_queries: int | None, seed: int
) -> dict[str, float | int | None]:
    """LID of a layer with Euclidean distances and chords √(2(1 − cos)), each plain and squared.

    For squared distances it is exactly half. None unless there are more embeddings than
    neighbours.
    """
    found: dict[str, float | int | None] = {"n_rows": len(x_ND)}
    distances: tuple[Literal["euclidean", "cosine"], ...] = ("euclidean", "cosine")
    for distance, name in zip(distances, ("lid", "lid_cosine"), strict=True):
        value = error = None
        if len(x_ND) > n_neighbors:
            own = lid_estimate(x_ND, n_neighbors, distance, max_queries=max_queries, seed=seed)
            value, error = float(own["value"]), float(own["standard_error"])
            found["n_queries"] = int(own["n_queries"])
        found[name], found[f"{name}_error"] = value, error
        found[f"{name}_squared"] = None if value is None else value / 2
        found[f"{name}_squared_error"] = None if error is None else error / 2
    return found


class _Part(NamedTuple):
    value: float
    error: float  # NaN where there are too few types for one
    n_rows: int


def _over_parts(found: Sequence[_Part]) -> OverParts:
    if not found:
        return OverParts()
    n_without = sum(not math.isfinite(part.error) for part in found)
    plain, by_rows = (
        _weighted(found, weights) for weights in ([1] * len(found), [part.n_rows for part in found])
    )
    return OverParts(*plain, *by_rows, n_without)


def _weighted(found: Sequence[_Part], weights: Sequence[int]) -> tuple[float, float | None]:
    """Weighted mean and its error, over the parts with a value."""
    shares = [weight / sum(weights) for weight in weights]
    value = sum(w * part.value for w, part in zip(shares, found, strict=True))
    errors = [w * part.error for w, part in zip(shares, found, strict=True)]
    known = [error for error in errors if math.isfinite(error)]
    return value, math.hypot(*known) if known else None
