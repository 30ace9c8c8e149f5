"""Draws curve.png: Spearman on test over the number of training pairs, before and after training.

`python experiments/where_isotropy_pays_confirmed/curve.py` in a clone.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

from isotrain.results.statistics import summarize

FOLDER = Path(__file__).parent
SIZES = {"pairs_100": 100, "pairs_300": 300, "pairs_1000": 1000, "pairs_all": 5749}
LABELS = {
    "clip": "mean subtracted, three directions shrunk",
    "mean": "mean subtracted",
    "none": "plain fine-tuning",
}
STYLES = {"clip": ("^", "-", "C2"), "mean": ("s", "-", "C1"), "none": ("o", "--", "C0")}
SHIFTS = {"clip": 1.03, "mean": 1.0, "none": 0.97}  # CIs side by side


def main() -> None:
    """One panel: each method before training in grey, after it in color with 95 % CI over seeds."""
    table = pd.read_csv(FOLDER / "results.csv", keep_default_na=False, na_values=[""])
    plt.rcParams.update({"font.size": 14, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(6.6, 6), layout="constrained")
    for method, label in LABELS.items():
        of = table[table["method"] == method].set_index("task")
        marker, line, color = STYLES[method]
        x = [n_pairs * SHIFTS[method] for n_pairs in SIZES.values()]
        start = [100 * of.loc[task, "before/test/spearman"].mean() for task in SIZES]
        axes.plot(x, start, marker + line, color="0.6", ms=6, lw=1.2)
        ends = [summarize(list(100 * of.loc[task, "test/spearman"])) for task in SIZES]
        y = [end.mean for end in ends]
        error = [(end.high or end.mean) - end.mean for end in ends]
        axes.errorbar(x, y, error, fmt=marker + line, color=color, ms=8, lw=2, label=label)
    handles = axes.get_legend_handles_labels()[0]
    handles += axes.plot([], [], color="0.6", lw=1.2, label="before training (same marks)")
    axes.set(xscale="log", xlabel="training pairs", ylabel="Spearman × 100 on STS-B test")
    axes.set_xticks(list(SIZES.values()), [f"{n:,}" for n in SIZES.values()])
    axes.minorticks_off()
    figure.legend(handles=handles, loc="outside upper left", frameon=False)
    figure.savefig(FOLDER / "curve.png", dpi=150)


if __name__ == "__main__":
    main()
