"""Draws frontier.png: isotropy of the encoder's own pooled embeddings against score; prints both.

`python docs/where_isotropy_pays/frontier.py` in a clone; reads table_own_embeddings.csv. Score: the
difference to none in percent of what fine-tuning gains; the bar of the study is -20 % at ten times
the isotropy of none, by IsoScore and by 1 - mean cosine. Power: of the one-sided paired t test that
a method loses less than a fifth of the gain, with ten seeds, if mean and SD of the difference are
those seen; both on dev.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from scipy.stats import nct, t

N_SEEDS = 10  # of a confirmation
FOLDER = Path(__file__).parent
TASKS = {  # score on test, pooled view, title
    "stsb_bi": ("test/spearman", "mean", "STS-B by cosine"),
    "wic": ("test/accuracy", "cls", "WiC"),
    "snli": ("test/accuracy", "cls", "SNLI"),
}
MEASURES = {"isoscore_corrected": "IsoScore", "mean_cosine": "mean cosine"}
MARKS = "os^vDPX*"


def main() -> None:
    """A column for each task, a row for each measure, a point for each method."""
    table = pd.read_csv(FOLDER / "table_own_embeddings.csv")
    table = table[table["runs"] == "all"].set_index(["task", "score", "method"])
    for task in TASKS:
        print(choice(table.loc[task], task).to_string(float_format="{:.3g}".format), "\n")
    figure, grid = plt.subplots(
        2, 3, sharey="col", sharex="row", figsize=(11, 7), layout="constrained"
    )
    for column, (task, (score, view, title)) in enumerate(TASKS.items()):
        scores = table.loc[task, score]
        trained = scores[(scores["n"] > 0) & ~scores.index.str.startswith("untrained")]
        gained = scores["mean"]["none"] - scores["mean"]["untrained"]
        for axes, (measure, name) in zip(grid[:, column], MEASURES.items(), strict=True):
            own = table.loc[task, f"isotropy/{measure}/layer_04/{view}"]
            axes.axhline(0, color="gray", lw=0.6)
            axes.axhline(-20, color="gray", lw=0.8, ls="--")
            for place, (method, row) in enumerate(trained.iterrows()):
                y, x = row[["difference", "difference_low", "difference_high"]], own.loc[method]
                y = (0 if method == "none" else y) * pd.Series([1, 1, 1]) * 100 / gained
                axes.errorbar(
                    *(x["mean"], y.iloc[0]),
                    yerr=[[y.iloc[0] - y.iloc[1]], [y.iloc[2] - y.iloc[0]]],
                    xerr=[[x["mean"] - x["low"]], [x["high"] - x["mean"]]],
                    fmt=MARKS[place % len(MARKS)],
                    color=f"C{place % 10}",
                    ms=5,
                    lw=0.6,
                    label=method,
                )
            axes.set_xlabel(f"{name} of the encoder's own embeddings")
        grid[0, column].set_title(title)
    for axes in grid[:, 0]:
        axes.set_ylabel("difference to none on test,\n% of what fine-tuning gains")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(FOLDER / "frontier.png", dpi=100)


def choice(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """How many times as isotropic as none, and the part of the gain that is lost, by method."""
    score, view, _ = TASKS[task]
    iso, cosine = (table.loc[f"isotropy/{m}/layer_04/{view}", "mean"] for m in MEASURES)
    dev = table.loc[score.replace("test", "val")]
    dev = dev[(dev["n"] > 0) & ~dev.index.str.startswith("untrained")]
    gained = dev["mean"]["none"] - table.loc[score.replace("test", "val"), "mean"]["untrained"]
    difference, sd = dev["difference"].fillna(0), dev["difference_sd"]
    noncentral = (difference + gained / 5) / (sd / N_SEEDS**0.5)
    power = nct.sf(t.ppf(0.95, N_SEEDS - 1), N_SEEDS - 1, noncentral)
    columns = {
        "dev": dev["mean"],
        "IsoScore ratio": iso / iso["none"],
        "1 - mean cosine ratio": (1 - cosine) / (1 - cosine["none"]),
        "difference, % of gain": 100 * difference / gained,
        "power": pd.Series(power, dev.index),
    }
    return pd.DataFrame(columns).loc[dev.index]


if __name__ == "__main__":
    main()
