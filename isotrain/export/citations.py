"""BibTeX of what a run was made of, for its model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isotrain.references import bibtex


def citations(config: Mapping[str, Any], model_type: str) -> list[str]:
    """BibTeX of the encoder, the isotropy layer and the objectives of a run, where it is known."""
    is_minilm = str(config["encoder"]["_target_"]).endswith(".load_minilm")
    nodes = [config["isotropy"], *config["objective"].values()]
    parts = [str(node["_target_"]).split(".")[-2] for node in nodes]
    if parts[0] == "cluster_pca" and config["isotropy"].get("n_clusters") == 1:
        parts[0] = "one_cluster"
    return bibtex(["minilm" if is_minilm else model_type, *parts])
