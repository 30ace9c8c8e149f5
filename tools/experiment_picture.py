"""Draw `differences.png` of an experiment from its `results.csv`.

    python tools/experiment_picture.py experiments/NAME [--score test/accuracy] [--methods a,b,c]
        [--tasks t,u] [--title "task=Title" ...] [--share-x]

A panel for each task that has the score, a line for each method: its difference to the baseline of
the study, paired by seed, with 95 % CI over seeds (Student's t) and a small mark for each seed.
Without `--score`: Spearman, else accuracy, on test if the study has it, else on dev. A method of
which a run has constant predictions is drawn hollow.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import yaml

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from isotrain.reporting.statistics import compare_paired

SCORES = ("test/spearman", "test/accuracy", "val/spearman", "val/accuracy")


def main() -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--score")
    parser.add_argument("--methods", type=lambda text: text.split(","))
    parser.add_argument("--tasks", type=lambda text: text.split(","))
    parser.add_argument("--title", nargs="*", default=[])
    parser.add_argument("--share-x", action="store_true", help="one scale for all panels")
    args = parser.parse_intermixed_args()
    table = pd.read_csv(args.folder / "results.csv", keep_default_na=False, na_values=[""])
    base = yaml.safe_load((args.folder / "study.yaml").read_text(encoding="utf-8"))["baseline"]
    tasks = args.tasks or list(table["task"].unique())
    titles = dict(text.split("=", 1) for text in args.title)
    methods = args.methods or [name for name in table["method"].unique() if name != base]
    figure, panels = plt.subplots(
        *(1, len(tasks)),
        figsize=(2.2 + 2.6 * len(tasks), 1.1 + 0.3 * len(methods)),
        sharey=True,
        sharex=args.share_x,
        squeeze=False,
        layout="constrained",
    )
    for axes, task in zip(panels[0], tasks, strict=True):
        own = table[table["task"] == task]
        score = args.score or next(name for name in SCORES if name in own and own[name].any())
        draw(axes, own, score, methods, base)
        split, _, name = score.partition("/")
        axes.set_title(titles.get(task, task), fontsize=10)
        where = {"val": "dev"}.get(split, split)
        axes.set_xlabel(f"{name.replace('/', ' ')} on {where} × 100, less {base}", fontsize=9)
    panels[0][0].set_yticks(range(len(methods)), methods)
    panels[0][0].set_ylim(len(methods) - 0.5, -0.5)
    figure.savefig(args.folder / "differences.png", dpi=90)


def draw(axes: Axes, own: pd.DataFrame, score: str, methods: list[str], base: str) -> None:
    """One panel."""
    wide = own.pivot_table(score, "seed", "method")
    axes.axvline(0, color="gray", lw=0.8)
    axes.tick_params(labelsize=9)
    axes.locator_params(axis="x", nbins=6)
    for place, method in enumerate(methods):
        if method not in wide:
            continue
        pairs = wide[[method, base]].dropna()
        each = 100 * (pairs[method] - pairs[base])
        found = compare_paired(list(100 * pairs[method]), list(100 * pairs[base])).difference
        has_collapsed = bool(own.loc[own["method"] == method, "collapsed"].any())
        axes.plot(each, np.full(len(each), place), "|", color="C0", alpha=0.5, ms=7)
        if found.low is not None and found.high is not None:
            axes.hlines(place, found.low, found.high, color="C0", lw=1.5)
        axes.plot(found.mean, place, "o", color="C0", ms=5, mfc="white" if has_collapsed else "C0")


if __name__ == "__main__":
    main()
