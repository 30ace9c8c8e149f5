"""Prints paired differences of two methods of a study, for the figures that its table leaves out.

`python docs/where_isotropy_pays/differences.py RUNS SCORE METHOD OTHER [TASK OTHER_TASK]`, with
RUNS the runs.csv that `isotrain report` writes and SCORE a column of it, such as test/spearman.

For each task that has both methods: the mean of each, the difference with its 95 % CI over seeds
(Student's t), and the range of METHOD over runs as multiples of the mean of OTHER, of the score and
of 1 - score. With two tasks, also the difference in TASK minus that in OTHER_TASK, by seed.
"""

import sys

import pandas as pd

from isotrain.reporting.statistics import compare_paired


def main(path: str, score: str, method: str, other: str, *tasks: str) -> None:
    """Four lines for each task that has both methods, and one for two tasks."""
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
        print(f"  difference {interval(pairs[method], pairs[other])}")
        for name, values in (("score", pairs), ("1 - score", 1 - pairs)):
            times = values[method] / values[other].mean()
            print(f"  {name} of {method}: {times.min():.3g} to {times.max():.3g} times {other}")
    if tasks:
        if missing := set(tasks) - set(differences):
            sys.exit(f"no runs of both methods in {', '.join(sorted(missing))}")
        both = pd.concat([differences[task] for task in tasks], axis=1).dropna()
        print(f"{' minus '.join(tasks)}: {interval(both.iloc[:, 0], both.iloc[:, 1])}")


def interval(one: pd.Series, other: pd.Series) -> str:
    """Mean difference, 95 % CI and n; no CI for one seed or equal differences."""
    found = compare_paired(list(one), list(other)).difference
    ends = "" if found.low is None else f" [{found.low:+.5f}, {found.high:+.5f}]"
    return f"{found.mean:+.5f}{ends}, n = {found.n}"


if __name__ == "__main__":
    if len(sys.argv) not in (5, 7):
        sys.exit(__doc__)
    main(*sys.argv[1:])
