"""Prints paired differences of two methods of a study, for the figures that its table leaves out.

`python docs/where_isotropy_pays/differences.py RUNS SCORE METHOD OTHER`, with RUNS the runs.csv
that `isotrain report` writes and SCORE a column of it, such as test/spearman.

For each task that has both methods: the mean of each, the difference with its 95 % CI over seeds
(Student's t), and the range of METHOD over runs as multiples of the mean of OTHER, of the score and
of 1 - score. Then, for each two tasks, the difference in the one less that in the other, paired by
seed.
"""

import sys
from itertools import combinations

import pandas as pd

from isotrain.reporting.statistics import compare_paired


def main(path: str, score: str, method: str, other: str) -> None:
    """Four lines for each task that has both methods."""
    runs = pd.read_csv(path, keep_default_na=False, na_values=[""])  # a method is called none
    if score not in runs:
        sys.exit(f"{path} has no column {score}; its first line lists the scores")
    if missing := {method, other} - set(runs["method"]):
        sys.exit(
            f"{path} has no method {', '.join(sorted(missing))}; use two of: "
            f"{', '.join(runs['method'].unique())}"
        )
    differences = {}
    for task, of_task in runs.groupby("task", sort=False):
        scores = of_task.pivot_table(score, "seed", "method").reindex(columns=[method, other])
        pairs = scores.dropna()
        if pairs.empty:
            continue
        differences[task] = pairs[method] - pairs[other]
        means = pairs.mean()
        print(f"{task} {score}: {method} {means[method]:.5g}, {other} {means[other]:.5g}")
        print(f"  difference {interval(differences[task])}")
        for name, values in (("score", pairs), ("1 - score", 1 - pairs)):
            times = values[method] / values[other].mean()
            print(f"  {name} of {method}: {times.min():.3g} to {times.max():.3g} times {other}")
    for one, two in combinations(differences, 2):
        both = (differences[one] - differences[two]).dropna()
        if len(both):
            print(f"{one} less {two}: {interval(both)}")


def interval(difference: pd.Series) -> str:
    """Mean, 95 % CI and n; without a CI if there is one seed or all differences are equal."""
    found = compare_paired(list(difference), [0.0] * len(difference)).difference
    ends = "" if found.low is None else f" [{found.low:+.5f}, {found.high:+.5f}]"
    return f"{found.mean:+.5f}{ends}, n = {found.n}"


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
