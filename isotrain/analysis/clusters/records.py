"""What the clusters analysis finds in a layer, as records and arrays.

N rows, D dimensions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.clusters.measures import (
    Clustering,
    centred_parts,
    cosines,
    dimensions,
    principal_map,
)
from isotrain.analysis.clusters.rows import Sample, distinct_rows, is_symbol
from isotrain.analysis.types import Found, Record

N_TOLD = 6  # tokens that are named of a cluster


def measure_layer(
    sample: Sample, layer: int, n_map: int, cluster: Callable[[Tensor], Clustering], seed: int
) -> Found:
    """S_inter and S_intra of a layer, its clusters, and of `n_map` rows a map (none if 0)."""
    x_ND, type_N = _distinct(sample, layer)
    found = cluster(x_ND)
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


def measure_lid(
    sample: Sample,
    n_neighbors: int,
    max_queries: int | None,
    seed: int,
    tell: Callable[[str], None],
) -> Found:
    """LID of each layer, and its mean over the layers of `averaged`.

    The error of the mean is the mean of their errors: the most it can be, since layers have the
    same rows and err together. That LID depends on the number of rows is not in it.
    """
    records: list[dict[str, Any]] = []
    for layer in sample.layers:
        tell(f"LID of layer {layer}")
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
    """The size of a cluster, and what is in it."""
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
