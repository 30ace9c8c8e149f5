"""Draws curve.png: Spearman on test over the number of training pairs.

`python docs/where_isotropy_pays/curve.py` in a clone. Trained models are those of
table_confirmed.csv; step 0 on test of the same seeds is in table_untrained.csv.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
SIZES = {"pairs_100": 100, "pairs_300": 300, "pairs_1000": 1000, "pairs_all": 5749}
SHORT = "pairs_300_60_steps"
METHODS = ("none", "mean", "clip")


def spearman(name: str) -> pd.DataFrame:
    """Test Spearman x 100, by method and task."""
    table = pd.read_csv(FOLDER / name)
    table = table[table["score"] == "test/spearman"].set_index(["method", "task"])
    table[["mean", "low", "high"]] *= 100
    return table


def main() -> None:
    """One panel for 60 steps on 300 pairs, one for 200 steps on each number of pairs."""
    table, start = spearman("table_confirmed.csv"), spearman("table_untrained.csv")
    figure, (short, sizes) = plt.subplots(
        1, 2, sharey=True, figsize=(9, 4), width_ratios=(1, 3), layout="constrained"
    )
    for place, method in enumerate(METHODS):
        color, shift = f"C{place}", 1 + (place - len(METHODS) / 2) * 0.02
        for axes, at in ((short, {SHORT: 300}), (sizes, SIZES)):
            of = table.loc[method].loc[list(at)]
            error = (of["mean"] - of["low"], of["high"] - of["mean"])
            x = [n_pairs * shift for n_pairs in at.values()]
            style = "--" if method.startswith("none") else "-"
            axes.errorbar(
                *(x, of["mean"], error),
                fmt=f"o{style}",
                color=color,
                capsize=2,
                ms=4,
                label=method,
            )
    for axes, title, at in ((short, "60 steps", [300]), (sizes, "200 steps", SIZES.values())):
        axes.set(xscale="log", title=title, xlabel="training pairs of STS-B")
        axes.set_xticks(list(at), [f"{n:,}" for n in at])
        axes.minorticks_off()
    for method, dots in (("untrained", ":"), ("untrained, clip", "-.")):
        of = start.loc[method].loc[list(SIZES)]["mean"]
        sizes.plot(list(SIZES.values()), of, color="gray", lw=0.8, ls=dots, label=method)
    sizes.legend(loc="lower right", bbox_to_anchor=(1, 0.05), ncols=2, frameon=False)
    n, examples = (int(table.loc["none"].iloc[0][name]) for name in ("n", "examples"))
    short.set_xlim(270, 333)
    short.set_ylabel(f"Spearman on test × 100 (N = {examples:,}),\nmean of {n} seeds, 95 % CI")
    figure.savefig(FOLDER / "curve.png", dpi=110)


if __name__ == "__main__":
    main()
