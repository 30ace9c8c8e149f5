"""Draw `differences.png` of an experiment from its `results.csv`.

    python tools/experiment_picture.py experiments/NAME ...

What is drawn stands in the page of the experiment, above the picture; every key may be left out:

    <!-- picture {tasks: {wic: WiC, stsb_bi: STS-B}, methods: [clip, istar], score: test/spearman,
    share_x: true} -->

A panel for each task (with its title), a line for each method: its difference to the baseline of
the study, paired by seed, with 95 % CI over seeds (Student's t) and a small mark for each seed.
Without `score`: Spearman, else accuracy, on test if the study has it, else on dev. A method of
which a run has constant predictions is drawn hollow. `share_x`: one scale for all panels.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import yaml

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from isotrain.results.statistics import compare_paired

SCORES = ("test/spearman", "test/accuracy", "val/spearman", "val/accuracy")
KEYS = ("tasks", "methods", "score", "share_x")
SPLITS = {"val": "dev", "test": "test"}
SPEC = re.compile(r"<!-- picture(.*?)-->", re.DOTALL)


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        spec = SPEC.search((folder / "README.md").read_text(encoding="utf-8"))
        if not spec:
            parser.error(
                f"a page says what its picture shows; {folder}/README.md does not: add "
                "<!-- picture {} --> above the picture"
            )
        content = yaml.safe_load(spec[1]) or {}
        if unknown := content.keys() - KEYS:
            parser.error(
                f"a picture has the keys {', '.join(KEYS)}; {folder}/README.md gives "
                f"{', '.join(sorted(unknown))}: correct or remove it"
            )
        draw(folder, content, folder / "differences.png")


def draw(folder: Path, spec: dict[str, Any], file: Path) -> None:
    """Draw the picture of an experiment into a file."""
    table = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
    base = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))["baseline"]
    tasks = spec.get("tasks") or {name: name for name in table["task"].unique()}
    methods = spec.get("methods") or [name for name in table["method"].unique() if name != base]
    figure, panels = plt.subplots(
        *(1, len(tasks)),
        figsize=(2.2 + 2.6 * len(tasks), 1.1 + 0.3 * len(methods)),
        sharey=True,
        sharex=spec.get("share_x", False),
        squeeze=False,
        layout="constrained",
    )
    for axes, (task, title) in zip(panels[0], tasks.items(), strict=True):
        runs = table[table["task"] == task]
        score = spec.get("score") or next(key for key in SCORES if key in runs and runs[key].any())
        draw_panel(axes, runs, score, methods, base)
        split, name, *genre = score.split("/")
        words = {"spearman": "Spearman", "accuracy": "accuracy"}.get(name, name)
        within = " within genres" if genre == ["within"] else "".join(f", {g}" for g in genre)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(f"{words}{within} on {SPLITS[split]} × 100, less {base}", fontsize=9)
    panels[0][0].set_yticks(range(len(methods)), methods)
    panels[0][0].set_ylim(len(methods) - 0.5, -0.5)
    figure.savefig(file, dpi=90)
    plt.close(figure)


def draw_panel(axes: Axes, runs: pd.DataFrame, score: str, methods: list[str], base: str) -> None:
    """One panel."""
    wide = runs.pivot_table(score, "seed", "method")
    axes.axvline(0, color="gray", lw=0.8)
    axes.tick_params(labelsize=9)
    axes.locator_params(axis="x", nbins=6)
    for place, method in enumerate(methods):
        if method not in wide:
            continue
        pairs = wide[[method, base]].dropna()
        each = 100 * (pairs[method] - pairs[base])
        difference = compare_paired(list(100 * pairs[method]), list(100 * pairs[base])).difference
        has_collapsed = bool(runs.loc[runs["method"] == method, "collapsed"].any())
        axes.plot(each, np.full(len(each), place), "|", color="C0", alpha=0.5, ms=7)
        if difference.low is not None and difference.high is not None:
            axes.hlines(place, difference.low, difference.high, color="C0", lw=1.5)
        axes.plot(
            difference.mean, place, "o", color="C0", ms=5, mfc="white" if has_collapsed else "C0"
        )


if __name__ == "__main__":
    main()
