"""What the parts of a metric and the counters of layers and objectives say, a line each."""

from __future__ import annotations

import re
from collections.abc import Iterable

PARTS = {  # by the name of a value without its number; a name that begins with _ is of any metric
    "outlier_dims_contribution": (
        "what the dimension adds to the mean cosine of two rows; all D together add up to it"
    ),
    "outlier_dims_share": (
        "its contribution over the mean cosine; 1/D where all dimensions are alike, 0 where the "
        "mean cosine is not positive"
    ),
    "outlier_dims_kurtosis": (
        "how uneven the sizes of the dimensions are: mean of s⁴ over squared mean of s², s the "
        "rms of a dimension; 1 = all alike, D = one alone"
    ),
    "outlier_dims_largest_kurtosis": (
        "of the dimension with the heaviest tails over rows: E[y⁴]/E[y²]², y centred; about 3 for "
        "Gaussian coordinates, at most N"
    ),
    "outlier_dims_largest_mean": (
        "largest |mean| of a dimension over the rms of all entries; 0 when the mean is zero"
    ),
    "outlier_dims_n_high_variance": (
        "dimensions with a variance above variance_factor (5, unless configured) times the mean "
        "variance"
    ),
    "_standard_error": "of the value, over the rows or groups that it is a mean of",
    "_n_queries": "rows that the value is a mean of",
    "_n_groups": "words or sentences that the value is a mean of",
    "_baseline": "what rows of different words or sentences give: the anisotropy",
    "_adjusted": "the value less its baseline",
    "_shuffled": "the value with all rows dealt out anew over sentences of the same sizes",
    "_above_shuffled": "the value less the shuffled one",
}
COUNTERS = {  # by the last part of a key
    "energy_kept": "scatter of the rows about their mean, behind the layer over in front; 1 = all",
    "label_scatter_removed": (
        "1 − s behind/s in front, s the share of the scatter that is between classes; 1 = their "
        "means are equal, 0 = they stand as far apart as before against the spread of all rows, "
        "below 0 = farther"
    ),
    "queue_gap": (
        "distance of the mean of the layer's queue from that of the dev rows, over the rms "
        "distance of these from it; 0 = the statistics fit"
    ),
    "queue_spread": (
        "rms distance of the queue's rows from their mean over that of the dev rows; 1 = the "
        "statistics fit"
    ),
    "rows_passed_through": "rows that were left as they are, as there was no scatter to measure",
    "rows_borrowed": (
        "rows of clusters too small for directions of their own: they lost those of all rows"
    ),
    "clusters_empty": "clusters without a row",
    "directions_removed": "directions that were removed, of all clusters together",
    "dims_cut": "dimensions whose tails were cut",
    "anchors_skipped": "rows of a batch that had nothing to be compared with",
    "undefined": "places of a batch, or whole batches, where the objective counts as 0",
}
NUMBER = re.compile(r"_\d+$")


def part_readings(metrics: Iterable[str]) -> list[tuple[str, str]]:
    """Names of values that are parts of a metric, without their numbers, and what each says.

    >>> part_readings(["lid_n_queries", "outlier_dims_share_1", "outlier_dims_share_2", "lid"])
    ... # doctest: +ELLIPSIS
    [('lid_n_queries', 'rows that ...'), ('outlier_dims_share', 'its contribution over ...')]
    """
    found = {}
    for name in sorted({NUMBER.sub("", metric) for metric in metrics}):
        ends = [key for key in PARTS if name == key or (key[0] == "_" and name.endswith(key))]
        if ends:
            found[name] = PARTS[max(ends, key=len)]
    return list(found.items())


def counter_readings(keys: Iterable[str]) -> list[tuple[str, str]]:
    """The counters among logged keys, by their last part, and what each says.

    >>> counter_readings(["train/pooled/clusters_empty", "val/pooled/clusters_empty", "val/loss"])
    [('clusters_empty', 'clusters without a row')]
    """
    names = {key.rpartition("/")[2] for key in keys if is_counter(key)}
    return [(name, COUNTERS[name]) for name in COUNTERS if name in names]


def is_counter(key: str) -> bool:
    """Whether a logged key counts what a layer or an objective did.

    >>> is_counter("train/pooled/clusters_empty"), is_counter("train/loss")
    (True, False)
    """
    return key.count("/") == 2 and key.partition("/")[0] in ("val", "train")
