"""Prints paired differences of two methods of a study, for the figures that its table leaves out.

`python docs/where_isotropy_pays/differences.py RUNS SCORE METHOD OTHER`, with RUNS the
runs.csv that `isotrain report` writes. SCORE is a column of it, such as test/spearman.

For each task: the mean of each method, the difference with its 95 % CI over seeds, and the range of
METHOD over runs as multiples of the mean of OTHER, of the score and of 1 - score.
"""

import sys

import pandas as pd
from scipy.stats import t


def main(path: str, score: str, method: str, other: str) -> None:
    """One line for each task that has both methods."""
    runs = pd.read_csv(path)
    runs["method"] = runs["method"].fillna("none")
    for task, of_task in runs.groupby("task", sort=False):
        scores = of_task.pivot_table(score, "seed", "method").reindex(columns=[method, other])
        pairs = scores.dropna()
        if pairs.empty:
            continue
        difference = pairs[method] - pairs[other]
        half = t.ppf(0.975, len(pairs) - 1) * difference.sem()
        means = pairs.mean()
        print(
            f"{task} {score} {method} {means[method]:.5g} {other} {means[other]:.5g} difference "
            f"{difference.mean():+.5f} [{difference.mean() - half:+.5f}, "
            f"{difference.mean() + half:+.5f}] n = {len(pairs)}"
        )
        for name, values in ((score, pairs), (f"1 - {score}", 1 - pairs)):
            times = values[method] / values[other].mean()
            print(f"  {name} of {method}: {times.min():.3g} to {times.max():.3g} times {other}")


if __name__ == "__main__":
    main(*sys.argv[1:])
