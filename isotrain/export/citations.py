"""BibTeX of what a run was made of, for its model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isotrain.encoders.on_disk import MINILM
from isotrain.resources.references import bibtex


def citations(config: Mapping[str, Any], model_type: str, data_sets: Sequence[Any]) -> list[str]:
    """BibTeX of encoder, adapters, isotropy layer, objectives and data of a run, where known."""
    is_minilm = config["encoder"]["_target_"] == MINILM
    nodes = [config["isotropy"], *config["objective"].values()]
    parts = [str(node["_target_"]).split(".")[-2] for node in nodes]
    if parts[0].endswith("cluster_pca"):
        one = config["isotropy"].get("n_clusters") == 1
        parts[:1] = ["one_cluster"] if one else ["cluster_pca", "tuned_clusters"]
    adapter = str(config["peft"]["_target_"]).rpartition(".")[2]
    ours = str(config["task"]["_target_"]).startswith("isotrain.tasks.")
    generated = str(config["source"]["_target_"]).endswith(".DemoSource")
    names = [one.name for one in data_sets] if ours and not generated else []
    return bibtex(["minilm" if is_minilm else model_type, adapter, *parts, *names])
