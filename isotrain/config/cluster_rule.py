"""The rule of `ClusterPCA` that only a whole configuration shows: rows enough in a batch."""

from __future__ import annotations

import math
from typing import Any

from isotrain.config.processes import n_processes
from isotrain.config.reading import class_constant, inherits, signature

CLUSTER_PCA = "isotrain.transforms.cluster_pca.ClusterPCA"
READ = {"stats", "n_clusters", "n_components", "removal"}
REMOVAL = "isotrain.geometry.cluster_removal.Removal"


def cluster_mistakes(content: dict[str, Any]) -> list[str]:
    """A batch that is too small for statistics of the batch: the layer would do next to nothing."""
    target, site = content["isotropy"]["_target_"], content["site"]
    bound = signature(target) if inherits(target, CLUSTER_PCA) else None
    if bound is None or not set(bound.defaults) >= READ:
        return []
    layer = {**bound.defaults, **content["isotropy"]}
    if layer["stats"] != "batch" or "pooled" not in site:
        return []
    spans = class_constant(content["pooling"]["_target_"], "reads") == "spans"
    per_example = 2 if spans or content["task"].get("form") == "bi" else 1
    batch, k = content["data"]["batch_size"], layer["n_clusters"]
    shares = 1 if content["sync"] else n_processes(content["trainer"])
    batch //= shares
    defaults = signature(REMOVAL)
    removal = {**(defaults.defaults if defaults else {}), **(layer["removal"] or {})}
    rho, components, needed = removal["rho"], layer["n_components"], removal["min_rows"]
    rows = batch * per_example / k
    removed = math.floor(rho * (rows - 1) + 1e-9)
    least = max(needed, 1 / rho + 1 if components > 0 else 0)
    enough = math.ceil(math.ceil(least * k - 1e-9) / per_example) * shares
    sizes = f"data.batch_size={batch * shares}"
    sizes += f" over {shares} processes (sync=false)" if shares > 1 else ""
    sizes += f" × {per_example} vectors" if per_example > 1 else ""
    shared = f"{sizes} over isotropy.n_clusters={k} leaves {rows:.3g} rows a cluster"
    ways = f"use data.batch_size={enough} or more, fewer clusters, or isotropy.stats=queue"
    if rows < needed:
        return [
            f"{shared}, fewer than isotropy.removal.min_rows={needed}: clusters would borrow the "
            f"statistics of all rows; {ways}"
        ]
    if components > 0 and removed < 1:
        return [
            f"{shared}, of which floor(rho·(n−1)) = floor({rho}·{rows - 1:.3g}) = {removed} "
            f"directions may be removed; {ways}"
        ]
    return []
