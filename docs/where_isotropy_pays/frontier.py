"""Draws frontier.png: isotropy of the encoder's own pooled embeddings against score; prints it too.

`python docs/where_isotropy_pays/frontier.py` in a clone; reads the tables of STUDIES, and those
of CONFIRMED for the star. A line joins the weights of a loss.

Isotropy: IsoScore and 1 - mean cosine on dev over those of none, of the encoder's output, less the
mean for methods that subtract one. Score: the difference to none in percent of what fine-tuning
gains, on test in the picture. The bar of the study is at 10 and -20 %. A white dot: at least one of
the runs has collapsed.
Power: of the one-sided paired t test that a method loses less than a fifth of the gain on dev, with
ten seeds, if mean and SD of the difference are those seen.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from scipy.stats import nct, t

N_SEEDS = 10  # of a confirmation
FOLDER = Path(__file__).parent
STUDIES = ("own_embeddings", "dose_response")  # with the same none
CONFIRMED = ("own_embeddings_confirmed", "own_embeddings_confirmed_wic")
TASKS = {  # score, pooled view, title
    "stsb_bi": ("spearman", "mean", "STS-B by cosine"),
    "wic": ("accuracy", "cls", "WiC"),
    "snli": ("accuracy", "cls", "SNLI"),
}
MEASURES = {"isoscore_corrected": "IsoScore", "mean_cosine": "1 - mean cosine"}
MARKS = "os^vDPX*"
STAR = "mean_gor, fresh seeds"  # 0.3, of CONFIRMED
COLORS = {"mean_gor": "black", "mean_istar": "gray", STAR: "gold"}  # others: C0 to C9


def points(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """A row for each method: value, low and high of each measure and split; power."""
    score, view, _ = TASKS[task]
    found = {}
    for measure, name in MEASURES.items():
        own = table.loc[f"isotropy/{measure}/layer_04/{view}"][["mean", "low", "high"]]
        output = table.loc[f"isotropy/{measure}/pooled/after"][["mean", "low", "high"]]
        own.update(output[output.index.str.startswith("mean")])
        if measure == "mean_cosine":
            own = 1 - own[["mean", "high", "low"]]
        for end, values in zip(("", " low", " high"), own.to_numpy().T, strict=True):
            found[name + end] = pd.Series(values, own.index) / own["mean"]["none"]
    for split in ("test", "val"):
        scores = table.loc[f"{split}/{score}"]
        gained = scores["mean"]["none"] - scores["mean"]["untrained"]
        for end in ("", "_low", "_high"):
            found[split + end.replace("_", " ")] = 100 * scores[f"difference{end}"] / gained
    sd = 100 * scores["difference_sd"] / gained
    noncentral = (found["val"] + 20) / (sd / N_SEEDS**0.5)
    power = nct.sf(t.ppf(0.95, N_SEEDS - 1), N_SEEDS - 1, noncentral)
    found["power"] = pd.Series(power, scores.index)
    found["collapsed"] = table.loc[f"test/{score}"]["collapsed"].notna()
    methods = scores.index[scores["difference"].notna() | (scores.index == "none")]
    return pd.DataFrame(found).loc[methods]


def weight(method: str) -> tuple[str, float]:
    """A loss and its weight, as a share of the task's gradient; 0 for other methods."""
    loss, _, share = method.rpartition("_")
    try:
        return loss.replace("_minus", ""), -float(share) if "_minus" in loss else float(share)
    except ValueError:
        return method, 0.0


def read(studies: Sequence[str]) -> pd.DataFrame:
    """The rows of all runs in the tables of some studies."""
    table = pd.concat(pd.read_csv(FOLDER / f"table_{name}.csv") for name in studies)
    return table.query("runs == 'all'").drop_duplicates(["task", "score", "method"])


def main() -> None:
    """A column for each task, a row for each measure, a point for each method."""
    table, confirmed = read(STUDIES), read(CONFIRMED)
    figure, grid = plt.subplots(
        2, 3, sharey="col", sharex="row", figsize=(11, 8), layout="constrained"
    )
    for column, (task, (_, _, title)) in enumerate(TASKS.items()):
        of_task, fresh = (
            points(one[one["task"] == task].set_index(["score", "method"]), task)
            for one in (table, confirmed)
        )
        of_task.loc[STAR] = fresh.loc["mean_gor_0.3"]
        shown = [*MEASURES.values(), "test", "val", "val low", "val high", "power"]
        print(title, of_task[shown].round(2).to_string(), sep="\n", end="\n\n")
        of_task = of_task.fillna(0).assign(weight=[weight(name)[1] for name in of_task.index])
        losses = of_task.groupby([weight(name)[0] for name in of_task.index], sort=False)
        for axes, name in zip(grid[:, column], MEASURES.values(), strict=True):
            axes.axhline(-20, color="gray", lw=0.8, ls="--")
            axes.axvline(10, color="gray", lw=0.8, ls="--")
            for place, (loss, rows) in enumerate(losses):
                rows = rows.sort_values("weight")
                x, y = (rows[[of, f"{of} low", f"{of} high"]].to_numpy().T for of in (name, "test"))
                axes.errorbar(
                    *(x[0], y[0]),
                    xerr=np.abs(x[1:] - x[0]),
                    yerr=np.abs(y[1:] - y[0]),
                    fmt=("*" if loss == STAR else MARKS[place % len(MARKS)]) + "-",
                    color=COLORS.get(loss, f"C{place % 10}"),
                    mec="black" if loss == STAR else None,
                    ms=13 if loss == STAR else 5,
                    zorder=10 if loss == STAR else 2,
                    lw=0.8,
                    elinewidth=0.4,
                    label=loss,
                )
                axes.plot(
                    *(of[0][rows["collapsed"].astype(bool)] for of in (x, y)), "w.", ms=4, zorder=9
                )
            axes.set_ylim(-140, 60)
            axes.set_xscale("log")
            axes.set_xlabel(f"{name}, times that of none")
        grid[0, column].set_title(title)
    for axes in grid[:, 0]:
        axes.set_ylabel("difference to none on test,\n% of what fine-tuning gains")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(FOLDER / "frontier.png", dpi=100)


if __name__ == "__main__":
    main()
