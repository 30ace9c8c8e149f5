"""Model-free baselines: chance, and the share of the majority class."""

from pathlib import Path

from isotrain.results.runs import SPLITS
from isotrain.runs.files import read_result

MAJORITY, CHANCE = "majority class", "chance"
CORRELATIONS = ("spearman", "spearman_within", "pearson", "matthews")  # 0 by chance


def reference(folder: Path, score: str) -> tuple[str, float] | None:
    """Model-free baseline of a score: its name and value; None if unknown.

    A correlation is 0 by chance; an accuracy is that of the largest class, as the run recorded it.
    """
    stage, _, metric = score.partition("/")
    if metric in CORRELATIONS:
        return CHANCE, 0.0
    if metric != "accuracy":
        return None
    try:
        share = read_result(folder).get("label_majority", {}).get(SPLITS[stage])
    except (OSError, ValueError):
        return None
    return None if share is None else (MAJORITY, float(share))
