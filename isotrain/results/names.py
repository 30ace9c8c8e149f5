"""Readable names of scores, clouds and numbers of examples."""

import re

from isotrain.results.readings import SIDE_TITLES, TITLES, label
from isotrain.results.runs import LESS_NULL, SPLITS
from isotrain.runs.keys import CurveKey, parse_key

CI = "95 % CI"
LESS_NULL_NAME = "ln I(W) less its null (0 = isotropic)"


def score_name(key: str) -> str:
    """Readable name of a score key.

    >>> score_name("test/accuracy"), score_name("isotropy/mean_cosine/pooled/after")
    ('accuracy on test', 'mean cosine (0 = isotropic), site pooled, output')
    """
    if curve_key := parse_key(key):
        name = LESS_NULL_NAME if curve_key.metric == LESS_NULL else label(curve_key.metric)
        return f"{name}, {cloud_name(curve_key)}"
    stage, _, name = key.partition("/")
    return f"{name.replace('_', ' ')} on {SPLITS.get(stage, stage)}"


def cloud_name(curve_key: CurveKey) -> str:
    """Readable name of a cloud."""
    if curve_key.view in TITLES:
        return f"layer {int(curve_key.where.removeprefix('layer_'))}, {TITLES[curve_key.view]}"
    return f"site {curve_key.where}, {SIDE_TITLES[curve_key.view]}"


def examples_text(examples: str) -> str:
    """Numbers of examples as printed."""
    return "N = " + re.sub(r"\d+", lambda n: f"{int(n[0]):,}", examples) if examples else ""
