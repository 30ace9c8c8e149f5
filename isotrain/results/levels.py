"""Model-free baselines: chance, and the share of the majority class."""

from pathlib import Path

import numpy as np

from isotrain.results.runs import SPLITS
from isotrain.runs.files import read_result
from isotrain.runs.predictions import read_predictions

MAJORITY, CHANCE = "majority class", "chance"
CORRELATIONS = ("spearman", "spearman_within", "pearson", "matthews")  # 0 by chance


def reference(folder: Path, score: str) -> tuple[str, float] | None:
    """Model-free baseline of a score: its name and value; None if unknown.

    A correlation is 0 by chance; an accuracy is that of the largest class, as recorded by the run,
    or computed from its predictions.
    """
    stage, _, metric = score.partition("/")
    if metric in CORRELATIONS:
        return CHANCE, 0.0
    if metric != "accuracy":
        return None
    try:
        share = read_result(folder).get("label_majority", {}).get(SPLITS[stage])
        if share is not None:
            return MAJORITY, float(share)
        predictions = read_predictions(folder, SPLITS[stage])
    except (OSError, ValueError):
        return None
    if predictions is None or not len(predictions.label):
        return None
    return MAJORITY, float(
        np.unique(predictions.label, return_counts=True)[1].max() / len(predictions.label)
    )
